#include "actors/registry/registry.hpp"

#include "actors/actor_support.hpp"
#include "base/log.hpp"

#include <chrono>

namespace troupe {

namespace {

constexpr auto tick_interval = std::chrono::milliseconds(200);

/// How long an allocator may wait for evicted slots before a reservation is answered with what there is.
constexpr auto take_time = std::chrono::seconds(2);

constexpr std::size_t samples_max = 1024;

} // namespace

registry::registry(caf::actor_config& config, const registry_options& options,
                   const std::vector<namespace_spec>& spaces, metrics_actor metrics)
    : registry_actor::base(config), state_(options), metrics_(std::move(metrics)) {
  for (const auto& spec : spaces)
    if (auto added = state_.add_namespace(spec); !added)
      log::get("registry")->error("namespace '{}' is not served: {}", spec.name, to_string(added.error()));
}

template <class Call>
auto registry::serve(request_kind kind, std::size_t items, Call call) {
  const auto started = now();
  auto answer = call(started);
  flush();
  sample(kind, items, started);
  return to_caf(std::move(answer));
}

registry::behavior_type registry::make_behavior() {
  tick_later();
  return {
      [this](const match_request& x) {
        return serve(request_kind::match, x.keys.size(), [&](timestamp t) { return state_.match(x, t); });
      },
      [this](const locate_request& x) {
        return serve(request_kind::locate, x.keys.size(), [&](timestamp t) { return state_.locate(x, t); });
      },
      [this](const release_request& x) {
        return serve(request_kind::release, 1, [&](timestamp t) { return state_.release(x, t); });
      },
      [this](const renew_request& x) {
        return serve(request_kind::release, 1, [&](timestamp t) { return state_.renew(x, t); });
      },
      [this](const reserve_request& x) { return reserve(x); },
      [this](commit_atom, const finish_request& x) {
        return serve(request_kind::commit, x.pages.size(), [&](timestamp t) { return state_.commit(x, t); });
      },
      [this](abort_atom, const finish_request& x) {
        return serve(request_kind::abort, x.pages.size(), [&](timestamp t) { return state_.abort(x, t); });
      },
      [this](const invalidate_request& x) {
        return serve(request_kind::invalidate, x.pages.size(), [&](timestamp t) { return state_.invalidate(x, t); });
      },
      [this](const link_request& x) -> caf::result<void> {
        const auto linked = state_.link(x, now());
        flush();
        return to_caf(linked);
      },
      [this](const evict_request& x) {
        return serve(request_kind::evict, x.wanted, [&](timestamp t) { return state_.evict(x, t); });
      },
      [this](owner_died_atom, owner_id owner) -> caf::result<void> {
        if (state_.owner_died(owner, now()))
          tick_at_once();
        flush();
        return caf::unit;
      },
      [this](bind_atom, const registry_peers& peers) -> caf::result<void> { return bind(peers); },
      [this](stats_atom) { return state_.stats(); },
      [this](caf::tick_atom) {
        ticks_ -= ticks_ > 0 ? 1 : 0;
        const bool more = state_.tick(now());
        flush();
        if (!samples_.samples.empty() && metrics_)
          send(metrics_, std::exchange(samples_, {}));
        if (more)
          tick_at_once();
        else if (ticks_ == 0)
          tick_later();
      },
  };
}

void registry::tick_at_once() {
  ++ticks_;
  send(this, caf::tick_atom_v);
}

void registry::tick_later() {
  ++ticks_;
  delayed_send(this, tick_interval, caf::tick_atom_v);
}

caf::result<void> registry::bind(const registry_peers& peers) {
  if (peers.spaces.size() != peers.allocators.size() || peers.ranks.size() != peers.allocators.size())
    return to_caf(error{errc::invalid_argument, "each allocator needs one namespace and one rank"});
  shards_ = peers.shards;
  allocators_.clear();
  for (std::size_t i = 0; i < peers.allocators.size(); ++i)
    allocators_.emplace(std::pair(peers.spaces[i], peers.ranks[i]), peers.allocators[i]);
  return caf::unit;
}

const allocator_actor* registry::allocator_of(const namespace_id& space, rank_number rank) const {
  const auto i = allocators_.find({space, rank});
  return i == allocators_.end() ? nullptr : &i->second;
}

caf::result<reserve_reply> registry::reserve(const reserve_request& wanted) {
  const auto started = now();
  auto plan = state_.begin_reserve(wanted, started);
  flush();
  sample(request_kind::reserve, wanted.keys.size(), started);
  if (!plan)
    return to_caf(plan.error());
  if (plan->what == reserve_plan::kind::answered)
    return std::move(plan->reply);
  auto promise = make_response_promise();
  plans_[plan->plan].push_back(promise);
  if (plan->what == reserve_plan::kind::pending)
    return promise;
  const auto id = plan->plan;
  const auto* slots = allocator_of(wanted.space, wanted.rank);
  if (slots == nullptr) {
    granted(id, {});
    return promise;
  }
  // Answered within `take_time` or a little more. Not given up before: slots in an answer that nobody takes would be
  // lost for good.
  request(*slots, caf::infinite, take_atom_v, wanted.token, plan->slots_needed, duration(take_time))
      .then([this, id](const take_reply& reply) { granted(id, reply.slots.items); },
            [this, id](const caf::error& e) {
              log::get("registry")->warn("no slots from an allocator: {}", to_string(from_caf(e)));
              granted(id, {});
            });
  return promise;
}

void registry::granted(plan_id plan, const std::vector<slot_ref>& slots) {
  const auto reply = state_.finish_reserve(plan, slots, now());
  flush();
  auto waiting = plans_.extract(plan);
  if (waiting.empty())
    return;
  for (auto& promise : waiting.mapped()) {
    if (reply)
      promise.deliver(*reply);
    else
      promise.deliver(to_caf(reply.error()));
  }
}

void registry::flush() {
  auto out = state_.take_outbox();
  // Before the slots: an allocator that has a slot back may ask the other shards for more, and they must know by then
  // which of their keys have no children any more.
  for (auto& links : out.links)
    if (links.shard < shards_.size())
      request(shards_[links.shard], caf::infinite, std::move(links.request))
          .then([] {},
                [](const caf::error& e) {
                  log::get("registry")->error("another shard did not take child links: {}", to_string(from_caf(e)));
                });
  for (const auto& batch : out.slots)
    tell_allocator(batch);
}

void registry::tell_allocator(const slots_to_allocator& batch) {
  const auto* to = allocator_of(batch.space, batch.rank);
  if (to == nullptr)
    return;
  const auto check = [](const char* verb) {
    return std::pair(
        [verb](const slot_results& reply) {
          for (const auto code : reply.results)
            if (code != 0)
              log::get("registry")
                  ->error("an allocator refused to {} a slot: {}", verb, to_string(static_cast<errc>(code)));
        },
        [verb](const caf::error& e) {
          log::get("registry")->error("an allocator could not {} slots: {}", verb, to_string(from_caf(e)));
        });
  };
  if (!batch.publish.slots.empty()) {
    const auto [ok, bad] = check("publish");
    request(*to, caf::infinite, publish_page_atom_v, batch.publish).then(ok, bad);
  }
  if (!batch.abort.slots.empty()) {
    const auto [ok, bad] = check("abort");
    request(*to, caf::infinite, abort_atom_v, batch.abort).then(ok, bad);
  }
  if (!batch.release.slots.empty()) {
    const auto [ok, bad] = check("release");
    request(*to, caf::infinite, release_atom_v, batch.release).then(ok, bad);
  }
}

void registry::sample(request_kind kind, std::size_t items, timestamp started) {
  if (samples_.samples.size() < samples_max)
    samples_.samples.items.push_back({static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(items),
                                      static_cast<std::uint64_t>(duration(now() - started).count())});
  if (samples_.samples.size() >= samples_max && metrics_)
    send(metrics_, std::exchange(samples_, {}));
}

void registry::on_exit() {
  const auto gone = to_caf(error{errc::shutting_down, "the registry is ending"});
  for (auto& [plan, waiting] : plans_)
    for (auto& promise : waiting)
      promise.deliver(gone);
  plans_.clear();
  shards_.clear();
  allocators_.clear();
  metrics_ = nullptr;
}

} // namespace troupe
