#include "tests/simulation/namespace_node.hpp"

#include "actors/node/memory/memory_broker.hpp"
#include "actors/node/namespaces/namespace_manager.hpp"
#include "actors/node/registry/registry.hpp"
#include "actors/support/ask.hpp"
#include "actors/support/node_condition.hpp"
#include "tests/simulation/node_words.hpp"

#include <algorithm>
#include <utility>

namespace troupe::simulation {

namespace {

/// Whether a client's process has ended, as the node may ask the kernel.
class watched_client final : public watched_process {
public:
  watched_client(const environment& world, const process_table& processes, std::int32_t number)
      : world_(world), processes_(processes), number_(number) {}

  bool gone() override { return world_.has(defect::forget_copies) || processes_.gone(number_, world_.now()); }

private:
  const environment& world_;
  const process_table& processes_;
  std::int32_t number_;
};

} // namespace

namespace_node::namespace_node(environment& world, const namespace_parameters& p)
    : world_(world), p_(p), random_(world.random.fork()), store_(world, {}, p.sync_time, p.refusing_store),
      folder_(world, p) {
  options_.data_dir = directory_.path();
  options_.statistics_interval = duration::zero();
  options_.registry.durability = p.durability;
  options_.registry.lease_max = p.lease;
  options_.registry.reservation_deadline = p.reservation;
  options_.storage.disk_bytes = p.disk_bytes;
  options_.memory.bytes = p.extents * p.extent_bytes;
  options_.drain_timeout = std::chrono::seconds(30);
}

namespace_node::~namespace_node() {
  kill();
}

// -- life and death ---------------------------------------------------------------------------------------------------

void namespace_node::start() {
  world_.trace("node starts");
  ++life_;
  while (!begin() && !world_.failed()) {
    world_.count("fault: killed while it started");
    folder_.crash();
    end();
  }
  if (world_.failed())
    return;
  store_.serve();
  serving_ = true;
}

void namespace_node::kill() {
  if (!in_)
    return;
  world_.trace("node is killed");
  serving_ = false;
  store_.crash();
  folder_.crash();
  end();
  for (auto& [id, x] : presence_)
    if (!p_.durable())
      x = presence::absent; // it starts with nothing
}

void namespace_node::end() {
  for (const auto& x : taps_)
    static_cast<tap*>(x->get())->forget();
  for (const auto& x : askers_)
    static_cast<asker*>(x->get())->forget();
  taps_.clear();
  askers_.clear();
  waiting_.clear();
  admin_ = nullptr;
  shards_.clear();
  keeper_ = nullptr;
  broker_ = nullptr;
  namespaces_ = nullptr;
  node_ = nullptr;
  in_.reset();
  open_asks_ = 0;
  making_.clear();
  removing_.clear();
}

registry_options namespace_node::options_of_shard(std::uint32_t i) const {
  registry_options out;
  out.shard = i;
  out.shard_count = p_.shards;
  out.change_feed = p_.durable();
  out.hash_seed = life_;
  out.memory = budget_;
  out.max_lease = p_.lease;
  out.max_reservation = p_.reservation;
  out.tells_workers = p_.second_hit || p_.prefetch_pages > 0;
  return out;
}

bool namespace_node::begin() {
  in_ = std::make_unique<process>(world_, "the node");
  memory_ = std::make_shared<namespace_memory>(world_, p_.extents, p_.extent_bytes);
  budget_ = std::make_shared<memory_budget>(std::uint64_t{1} << 30U);
  disk_ = std::make_shared<io::disk_budget>(p_.disk_bytes);
  names_ = std::make_shared<namespace_names>();
  const auto index = p_.durable() ? store_.open(p_.kill_node) : nullptr;
  const process::hurry at_once(*in_, random_, [this] { end_waiting(); });
  const auto meters = caf::actor_cast<metrics_actor>(make_deaf(in_->system()));
  for (std::uint32_t i = 0; i < p_.shards; ++i) {
    const auto real = in_->keep(
        spawn_actor<registry>(in_->system(), options_of_shard(i), std::vector<namespace_spec>{}, meters, index));
    shards_.push_back(put_tap(in_->system(), real,
                              {[this, i](passing& x) { return to_shard(i, x); },
                               [this](const passing& x, caf::message&) {
                                 if (x.sender)
                                   waiting_.erase({x.sender->id(), x.id.integer_value()});
                                 return true;
                               }}));
    taps_.push_back(caf::actor_cast<caf::strong_actor_ptr>(shards_.back()));
  }
  for (const auto& x : shards_)
    caf::anon_send(x, bind_atom_v, registry_peers{shards_, {}, {}, {}});
  memory_broker_options rules;
  rules.keep_at_least = p_.patience;
  broker_ = in_->keep(spawn_actor<memory_broker>(in_->system(), memory_, rules, p_.patience));
  const auto keeper = in_->keep(spawn_actor<namespace_manager>(
      in_->system(), namespace_manager_options{std::make_shared<config::node_config>(options_), folder_.open(memory_),
                                               disk_, budget_, meters, std::make_shared<node_condition>(),
                                               std::make_shared<page_residence>(), shards_, broker_}));
  keeper_ = put_tap(in_->system(), keeper,
                    {{}, [this](const passing& x, caf::message& answer) { return from_keeper(x, answer); }});
  taps_.push_back(caf::actor_cast<caf::strong_actor_ptr>(keeper_));
  namespaces_config how;
  how.shards = shards_;
  how.names = names_;
  how.keeper = keeper_;
  how.judge = [](const namespace_spec&) { return result<void>{}; };
  how.memory = budget_;
  known_namespaces known;
  if (index) {
    auto restored = restore_index(in_->system(), *index, how, options_, {});
    if (!restored) {
      if (!store_.killed())
        world_.fail("restart", "the node does not start: " + to_string(restored.error()));
      return false;
    }
    known = std::move(*restored);
  }
  caf::anon_send(keeper_, restored_atom_v);
  check_restored(known);
  how.made = known.made;
  namespaces_ = in_->keep(spawn_actor<namespaces>(in_->system(), how, known.namespaces, known.ranks));
  supervise(known, meters);
  return true;
}

void namespace_node::supervise(const known_namespaces& known, const metrics_actor& meters) {
  node_children children;
  children.extents = memory_;
  for (const auto& x : shards_)
    children.add_shard(x);
  children.add({"the memory broker", caf::actor_cast<caf::actor>(broker_), "it ends"});
  children.add_metrics(meters);
  children.add({"the keeper", caf::actor_cast<caf::actor>(keeper_), "it ends"});
  for (const auto& x : known.made)
    children.add_made(x, children.served.size());
  children.add({"the namespaces actor", caf::actor_cast<caf::actor>(namespaces_), "it ends"});
  children.namespaces = namespaces_;
  node_ = in_->keep(spawn_actor<node>(in_->system(), std::make_shared<const config::node_config>(options_), children,
                                      [this](std::int32_t x) { return watch(x); }));
  admin_ = new_asker();
}

result<std::unique_ptr<watched_process>> namespace_node::watch(std::int32_t number) {
  if (number == 0)
    return std::unique_ptr<watched_process>();
  if (processes_.gone(number, world_.now()))
    return fail(errc::unreachable, "there is no process " + std::to_string(number));
  return std::make_unique<watched_client>(world_, processes_, number);
}

caf::strong_actor_ptr namespace_node::new_asker() {
  askers_.push_back(asker::make(in_->system()));
  return askers_.back();
}

void namespace_node::ask(const caf::strong_actor_ptr& by, const caf::strong_actor_ptr& to, caf::message what,
                         asker::then done) {
  ++open_asks_;
  static_cast<asker*>(by->get())->ask(to, std::move(what),
                                      [this, life = life_, done = std::move(done)](caf::message& answer) {
                                        if (life != life_)
                                          return;
                                        --open_asks_;
                                        done(answer);
                                      });
}

// -- taps -------------------------------------------------------------------------------------------------------------

bool namespace_node::to_shard(std::uint32_t i, passing& x) {
  trace_message(world_, "to shard", i, x.content);
  if (!serving_ && x.sender && x.id.is_request())
    waiting_[{x.sender->id(), x.id.integer_value()}] = x;
  if (serving_ && i + 1 == p_.shards && world_.has(defect::half_removed) &&
      x.content.match_elements<remove_namespace_request>()) {
    tap::answer(x, caf::make_message(remove_namespace_reply{false}));
    return false;
  }
  return true;
}

void namespace_node::end_waiting() {
  for (const auto& [request, x] : std::exchange(waiting_, {}))
    tap::answer(x, caf::make_message(to_caf(error{errc::timeout, "a shard does not answer a start"})));
}

bool namespace_node::from_keeper(const passing& asked, caf::message& answer) {
  trace_message(world_, "from keeper", 0, answer);
  const auto& x = asked.content;
  if (x.match_elements<open_namespace_request>() && answer.match_elements<served_namespace>())
    for (const auto& rank : answer.get_as<served_namespace>(0).ranks)
      since_.emplace(std::tuple(x.get_as<open_namespace_request>(0).spec.id(), rank.rank, rank.incarnation), life_);
  return !(x.match_elements<close_namespace_request>() && world_.has(defect::lose_close) && random_.one_in(4));
}

// -- what may be ------------------------------------------------------------------------------------------------------

void namespace_node::asked_to_make(const namespace_id& ns) {
  --making_[ns];
}

void namespace_node::making(const namespace_id& ns) {
  ++making_[ns];
  if (auto& x = presence_[ns]; x == presence::absent)
    x = presence::unknown;
}

void namespace_node::attached(const namespace_id& ns) {
  auto& x = presence_[ns];
  if (x == presence::absent)
    world_.fail("removed", "a client attaches to namespace " + to_string(ns) + ", which is removed");
  x = removing_[ns] > 0 ? presence::unknown : presence::present;
}

void namespace_node::committing(const namespace_id& ns, rank_number rank, incarnation_number of, const page_ref& page) {
  committed_.emplace(ns, rank, of, page.key);
}

void namespace_node::notified(const namespace_id& ns, rank_number rank, incarnation_number of, const page_ref& page) {
  if (!committed_.contains({ns, rank, of, page.key}))
    world_.fail("removed", "key " + to_string(page.key) + " is found on rank " + std::to_string(rank) +
                               ", where it was not saved since the namespace was made");
}

bool namespace_node::may_have_lost(const namespace_id& ns, rank_number rank, incarnation_number of) const {
  const auto found = since_.find({ns, rank, of});
  return !p_.strict() && (found == since_.end() || found->second != life_);
}

void namespace_node::check_restored(const known_namespaces& known) {
  std::set<namespace_id> there;
  for (const auto& x : known.made) {
    world_.count("restored namespace");
    there.insert(x.spec.id());
    if (presence_[x.spec.id()] == presence::absent)
      world_.fail("removed", "namespace '" + x.spec.name + "' was removed, and is there after a start");
  }
  for (auto& [id, x] : presence_) {
    if (x == presence::present && !there.contains(id) && p_.durable())
      world_.fail("restart", "namespace " + to_string(id) + " was made, and is not there after a start");
    x = there.contains(id) ? presence::present : presence::absent;
  }
}

void namespace_node::remove(const namespace_spec& ns, bool force, std::function<void(errc)> done) {
  const auto id = ns.id();
  auto& now = presence_[id];
  if (now == presence::present)
    now = presence::unknown;
  ++removing_[id];
  world_.trace("removal", {id.lo, force ? 1U : 0U});
  ask(admin_, caf::actor_cast<caf::strong_actor_ptr>(namespaces_),
      caf::make_message(remove_namespace_request{id, force}),
      [this, id, force, name = ns.name, done = std::move(done)](caf::message& answer) {
        --removing_[id];
        const auto outcome = answer_as<void>(answer);
        const auto code = outcome ? errc::ok : outcome.error().code;
        world_.count(force ? "forced removal" : "removal", code);
        if (code == errc::ok) {
          presence_[id] = making_[id] > 0 ? presence::unknown : presence::absent;
          if (names_->kept_here(id))
            world_.fail("removed", "namespace '" + name + "' is removed, and its name is known");
          if (folder_.files_of(id) > 0)
            world_.fail("files", "namespace '" + name + "' is removed, and its files are there");
        } else if (code != errc::busy && code != errc::unknown_namespace) {
          world_.fail("codes", "a removal ends with what cannot be: " + to_string(outcome.error()));
        }
        if (done)
          done(code);
      });
}

// -- what the checks look at ------------------------------------------------------------------------------------------

template <class T, class Handle, class... Ts>
result<T> namespace_node::ask_now(const Handle& to, Ts... xs) {
  const process::hurry at_once(*in_, random_);
  const auto answered = std::make_shared<std::optional<result<T>>>();
  troupe::ask<T>(
      in_->system(), to, [answered](result<T> x) { answered->emplace(std::move(x)); }, std::move(xs)...);
  return *answered ? std::move(**answered) : result<T>(fail(errc::timeout, "there is no answer"));
}

void namespace_node::check_counts() {
  const auto stats = ask_now<node_stats>(node_, stats_atom_v);
  if (!stats)
    return;
  std::uint64_t bytes = 0;
  for (const auto& x : stats->ranks) {
    if (x.slots.free + x.slots.reserved + x.slots.live + x.slots.quarantined != x.slots.total || x.slots.refused > 0)
      world_.fail("slots", "slots by state do not add up to all slots of an allocator");
    bytes += x.io.extents;
  }
  if (bytes > memory_->assigned())
    world_.fail("extents", "ranks have " + std::to_string(bytes) + " extents, and " +
                               std::to_string(memory_->assigned()) + " are assigned");
}

std::string namespace_node::check_empty() {
  if (!running())
    return "the node is not there";
  if (open_asks_ > 0)
    return std::to_string(open_asks_) + " requests are not answered";
  for (const auto& x : shards_) {
    const auto all = ask_now<describe_reply>(x, describe_request{});
    if (!all || !all->namespaces.empty())
      return "a shard knows a namespace that is removed";
    const auto s = ask_now<registry_stats>(x, stats_atom_v);
    if (!s || s->leases + s->reservations + s->withheld_slots + s->keys > 0)
      return "a shard has keys, leases or reservations of a namespace that is removed";
  }
  if (const auto assigned = memory_->assigned(); assigned > 0 && !p_.unknown_processes)
    return std::to_string(assigned) + " extents are assigned to no rank";
  if (folder_.files() > 0)
    return std::to_string(folder_.files()) + " files are left of namespaces that are removed";
  if (disk_->left() != disk_->limit())
    return std::to_string(disk_->limit() - disk_->left()) + " bytes of disk space have no owner";
  if (!store_.idle())
    return "the store has not written all that it was given";
  const auto stats = ask_now<node_stats>(node_, stats_atom_v);
  if (!stats || !stats->ranks.empty())
    return "the node has ranks of namespaces that are removed";
  return {};
}

} // namespace troupe::simulation
