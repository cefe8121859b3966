#include "actors/node/namespaces/namespaces.hpp"

#include "actors/node/allocator/allocator.hpp"
#include "actors/node/registry/answers.hpp"
#include "actors/node/registry/key_space.hpp"
#include "actors/support/gather.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace troupe {

std::uint64_t bytes_of_slots(std::uint64_t slots, std::size_t shards) noexcept {
  return slots * (allocator_state::bytes_per_slot + shards * key_space::bytes_per_indexed_slot);
}

result<allocator_actor> spawn_unfenced_allocator(caf::actor_system& system, const namespaces_config& options,
                                                 const rank_order& wanted, const std::string& namespace_name,
                                                 slot_number first_slot) {
  auto slots = options_for_slots(wanted.slots, options.low_watermark, options.high_watermark);
  slots.first_slot = first_slot;
  slots.closed_for = options.longest_promise + options.rest;
  slots.rest = options.rest;
  const auto what = name_of(wanted.rank, namespace_name) + " with " + std::to_string(wanted.slots) + " pages";
  auto memory = memory_share::of(options.memory, bytes_of_slots(wanted.slots, options.shards.size()), what);
  if (!memory)
    return tl::unexpected<error>(std::move(memory.error()));
  try {
    auto out = spawn_actor<allocator>(system, slots, wanted.ns, wanted.rank, io_worker_actor{}, std::move(*memory));
    caf::anon_send(out, bind_atom_v, registry_peers{options.shards, {}, {}, {}});
    return out;
  } catch (const std::bad_alloc&) {
    return fail(errc::no_memory, "out of memory for " + what);
  }
}

namespaces::namespaces(caf::actor_config& config, namespaces_config options,
                       const std::vector<add_namespace_request>& known, const std::vector<known_rank>& ranks)
    : namespaces_actor::base(config), options_(std::move(options)), state_(state_options()),
      making_(making_options(options_)) {
  for (const auto& x : known)
    state_.know(x.spec);
  for (const auto& x : options_.own)
    state_.know_own(x);
  for (const auto& x : ranks)
    know(x);
  // The node watches these allocators and ends them.
  for (const auto& x : options_.own_ranks)
    state_.know({{x.ns, x.rank, x.slots}, ++last_allocator_, x.incarnation});
  for (const auto& x : options_.made) {
    made_.emplace(x.spec.id(), x);
    making_.know(x.spec);
  }
  flush();
  set_down_handler([this](caf::down_msg& down) { on_down(down); });
}

namespace_making::options namespaces::making_options(const namespaces_config& options) {
  if (!options.judge || !options.keeper)
    return {[](const namespace_spec&) -> result<void> {
      return fail(errc::unsupported, "this node makes no namespaces for clients; add the namespace to the config");
    }};
  return {options.judge};
}

namespace {

/// Positions that are far apart for consecutive numbers, for any number of slots.
slot_number scattered(std::uint64_t number, std::uint32_t slots) {
  constexpr std::uint32_t golden_ratio = 2654435769U;
  const auto fraction = static_cast<std::uint32_t>(number) * golden_ratio;
  return static_cast<slot_number>((std::uint64_t{fraction} * slots) >> 32U);
}

} // namespace

namespaces_state::options namespaces::state_options() {
  namespaces_state::options out;
  out.max_slots = options_.max_slots;
  out.names = options_.names;
  out.make_allocator = [this](const rank_order& wanted, const std::string& namespace_name, bool replaces) {
    // Starts at another slot than the previous allocator. A confirmation that is late beyond all promises names a key
    // and a slot, and a restarted engine saves the same keys in the same order.
    const auto first = replaces ? scattered(last_allocator_ + 1, wanted.slots) : 0;
    return spawn_unfenced_allocator(system(), options_, wanted, namespace_name, first).map([this](allocator_actor&& x) {
      return remember(std::move(x));
    });
  };
  return out;
}

namespaces::allocator_number namespaces::remember(allocator_actor allocator) {
  monitor(allocator);
  allocators_.emplace(++last_allocator_, std::move(allocator));
  return last_allocator_;
}

void namespaces::know(const known_rank& x) {
  state_.know({{x.ns, x.rank, x.slots}, remember(x.allocator), x.incarnation});
}

void namespaces::on_down(const caf::down_msg& down) {
  for (const auto& [number, allocator] : allocators_)
    if (allocator.address() == down.source) {
      log::get("namespaces")
          ->critical("allocator died: {} ({}); its slots are lost, so the node shuts down", state_.rank_of(number),
                     system().render(down.reason));
      return quit(caf::exit_reason::unhandled_exception);
    }
}

namespaces::behavior_type namespaces::make_behavior() {
  return {
      [this](const add_namespace_request& x) -> caf::result<void> {
        if (making_.knows(x.spec.id()))
          return add_again(x);
        return decide([&](auto request) { state_.add(request, x); });
      },
      [this](const remove_namespace_request& x) -> caf::result<void> { return remove(x); },
      [this](const register_rank_request& x) -> caf::result<void> {
        if (making_.knows(x.ns))
          return to_caf(error{errc::not_owner,
                              "the node keeps the pages of this namespace in its own memory and files and "
                              "knows its ranks; make another namespace for files of your own"});
        return decide([&](auto request) { state_.register_rank(request, {x.ns, x.rank, x.slots}); });
      },
      [this](const make_namespace_request& x) { return make(x); },
      [this](bind_atom, const node_actor& node) -> caf::result<void> {
        if (node_ || !asked_from_here(*this))
          return to_caf(error{errc::exists, "the node is already bound"});
        node_ = node;
        return caf::unit;
      },
  };
}

void namespaces::flush() {
  for (auto effects = state_.take_outbox(); !effects.empty(); effects = state_.take_outbox())
    for (auto& effect : effects)
      std::visit([this](auto& x) { perform(x); }, effect);
  for (auto effects = making_.take_outbox(); !effects.empty(); effects = making_.take_outbox())
    for (auto& effect : effects)
      std::visit([this](auto& x) { perform(x); }, effect);
}

template <class Request>
void namespaces::ask_shards(const std::vector<Request>& wanted, outcomes_function then) {
  using outcomes = std::vector<error>;
  const auto shards = options_.shards.size();
  // The first failure among a shard's requests is the outcome of the shard.
  const auto all = gather(shards * wanted.size(), outcomes(shards, error{errc::ok, {}}),
                          [then = std::move(then)](const result<outcomes>& x) { then(*x); });
  for (std::size_t i = 0; i < shards; ++i) {
    const auto end = [all, i](error outcome) {
      if (auto& sum = all->value()[i]; sum.code == errc::ok)
        sum = std::move(outcome);
      all->part_done();
    };
    for (const auto& x : wanted)
      if constexpr (std::is_same_v<Request, remove_namespace_request>)
        remove_from(options_.shards[i], x, end);
      else
        request(options_.shards[i], caf::infinite, x)
            .then(
                [end] {
                  end({errc::ok, {}});
                },
                [end](const caf::error& e) { end(from_caf(e)); });
  }
}

template <class Request>
void namespaces::notify_shards(namespaces_state::order_number number, const Request& wanted) {
  ask_shards<Request>({wanted}, [this, number](const std::vector<error>& outcomes) {
    state_.notified(number, outcomes);
    flush();
  });
}

// All shards are checked first, so that a removal that one refuses is not done on another. A change between the check
// and the removal is rare; then the rules make the other shards follow.
void namespaces::remove_everywhere(const remove_namespace_request& wanted, outcomes_function then) {
  if (wanted.force)
    return ask_shards<remove_namespace_request>({wanted}, std::move(then));
  struct held {
    std::string name;
    std::uint64_t leases = 0;
    std::uint64_t reservations = 0;
  };
  const auto all =
      gather(options_.shards.size(), held{}, [this, wanted, then = std::move(then)](const result<held>& x) {
        if (x->leases + x->reservations == 0)
          return ask_shards<remove_namespace_request>({wanted}, then);
        then(std::vector(options_.shards.size(), namespace_in_use(x->name, x->leases, x->reservations)));
      });
  for (const auto& shard : options_.shards)
    request(shard, caf::infinite, describe_request{wanted.ns})
        .then(
            [all](const describe_reply& reply) {
              for (const auto& x : reply.namespaces) {
                auto& sum = all->value();
                sum.name = x.spec.name;
                // Each lease and reservation has a part on every shard, so the largest count is reported.
                sum.leases = std::max(sum.leases, x.leases);
                sum.reservations = std::max(sum.reservations, x.reservations);
              }
              all->part_done();
            },
            // A shard that does not know the namespace does not refuse its removal.
            [all](const caf::error&) { all->part_done(); });
}

void namespaces::remove_from(const registry_actor& shard, const remove_namespace_request& wanted,
                             outcome_function then) {
  request(shard, caf::infinite, wanted)
      .then(
          [this, shard, wanted, then](const remove_namespace_reply& reply) {
            if (reply.more)
              remove_from(shard, wanted, then);
            else
              then({errc::ok, {}});
          },
          [then](const caf::error& e) { then(from_caf(e)); });
}

void namespaces::perform(namespaces_state::report_namespace& x) {
  notify_shards(x.number, x.request);
}

void namespaces::perform(namespaces_state::report_rank& x) {
  const auto& [rank, allocator, incarnation] = x.what;
  notify_shards(x.number, add_rank_request{rank.ns, rank.rank, rank.slots, allocators_.at(allocator), incarnation, {}});
}

void namespaces::perform(namespaces_state::order_retirement& x) {
  notify_shards(x.number, retire_rank_request{x.ns, x.rank});
}

void namespaces::perform(namespaces_state::order_removal& x) {
  remove_everywhere(x.request, [this, number = x.number](const std::vector<error>& outcomes) {
    state_.notified(number, outcomes);
    flush();
  });
}

void namespaces::perform(namespaces_state::count_slots& x) {
  request(allocators_.at(x.allocator), caf::infinite, stats_atom_v)
      .then(
          [this, number = x.number](const allocator_stats& slots) {
            state_.counted(number, slots);
            flush();
          },
          [this, number = x.number](const caf::error& e) {
            state_.counted(number, failed<allocator_stats>(e));
            flush();
          });
}

void namespaces::perform(namespaces_state::rest_allocator& x) {
  caf::anon_send(allocators_.at(x.allocator), resize_atom_v, std::uint32_t{0});
}

void namespaces::perform(namespaces_state::end_allocator& x) {
  const auto node = allocators_.extract(x.allocator);
  demonitor(node.mapped().address());
  send_exit(node.mapped(), caf::exit_reason::user_shutdown);
}

void namespaces::perform(namespaces_state::answer& x) {
  if (x.outcome.code == errc::ok)
    promises_.deliver(x.request, caf::unit);
  else
    promises_.deliver(x.request, to_caf(x.outcome));
}

void namespaces::perform(namespaces_state::note& x) {
  log::get("namespaces")->info("{}", x.text);
}

void namespaces::on_exit() {
  promises_.fail_all({errc::shutting_down, "the node is shutting down"});
  for (const auto& [number, allocator] : allocators_) {
    demonitor(allocator.address());
    send_exit(allocator, caf::exit_reason::user_shutdown);
  }
  allocators_.clear();
  made_.clear();
  node_ = nullptr;
  options_ = {};
}

} // namespace troupe
