#include "tests/simulation/slot_node.hpp"

#include "actors/node/namespaces/namespaces.hpp"
#include "actors/node/registry/registry.hpp"
#include "actors/support/ask.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::simulation {

namespace {

/// In memory if there is such a file system: the node syncs its writes there.
std::filesystem::path quick_place() {
  const std::filesystem::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

} // namespace

slot_node::slot_node(environment& world, const slot_parameters& p)
    : world_(world), p_(p), random_(world.random.fork()), ns_(p.ns.id()),
      store_(world, p.ns.id(), p.sync_time, p.refusing_store), directory_(quick_place()),
      disks_(p.ranks, slot_disk(p.slots)), slots_(p.ranks, p.slots), pages_(p.ranks, p.slots) {
  options_.data_dir = directory_.path();
  options_.statistics_interval = duration::zero();
}

slot_node::~slot_node() {
  kill();
}

// -- life and death ---------------------------------------------------------------------------------------------------

void slot_node::start() {
  world_.trace("node starts");
  ++life_;
  kind_ = run_kind::durable;
  if (p_.other_runs && random_.one_in(3))
    kind_ = random_.one_in(2) ? run_kind::without_index : run_kind::taken_name;
  if (kind_ != run_kind::durable) {
    world_.count(keeps_index() ? "run: with another registration" : "run: without the index");
    store_.forget_promises();
  }
  while (!begin() && !world_.failed()) {
    world_.count("fault: killed while it started");
    end();
  }
  if (world_.failed())
    return;
  store_.serve();
  check_restored();
  serving_ = true;
}

void slot_node::kill() {
  if (!running())
    return;
  world_.trace("node is killed");
  serving_ = false;
  store_.crash();
  end();
}

void slot_node::end() {
  for (const auto& x : taps_)
    static_cast<tap*>(x->get())->forget();
  taps_.clear();
  waiting_.clear();
  service_.reset();
  namespaces_ = nullptr;
  shards_.clear();
  ranks_.clear();
  in_.reset();
  pages_.clear();
  promises_.clear();
  open_calls_ = 0;
}

registry_options slot_node::options_of_shard(std::uint32_t i) const {
  registry_options out;
  out.shard = i;
  out.shard_count = p_.shards;
  out.change_feed = keeps_index();
  out.hash_seed = life_;
  out.promised = world_.has(defect::forget_promises) ? duration::zero() : p_.promised();
  out.children_hold = world_.has(defect::endless_children) ? std::chrono::hours(100) : p_.children_hold;
  return out;
}

void slot_node::spawn_shards(const std::shared_ptr<store::metadata_store>& index) {
  const auto meters = caf::actor_cast<metrics_actor>(make_deaf(in_->system()));
  for (std::uint32_t i = 0; i < p_.shards; ++i) {
    const auto real = in_->keep(
        spawn_actor<registry>(in_->system(), options_of_shard(i), std::vector<namespace_spec>{}, meters, index));
    shards_.push_back(put_tap(in_->system(), real,
                              {[this, i](passing& x) { return to_shard(i, x); },
                               [this, i](const passing& x, caf::message& a) { return from_shard(i, x, a); }}));
    taps_.push_back(caf::actor_cast<caf::strong_actor_ptr>(shards_.back()));
  }
  for (const auto& x : shards_)
    caf::anon_send(x, bind_atom_v, registry_peers{shards_, {}, {}, {}});
}

bool slot_node::begin() {
  in_ = std::make_unique<process>(world_, "the node");
  restored_.clear();
  ranks_.resize(p_.ranks);
  const process::hurry at_once(*in_, random_, [this] { end_waiting(); });
  const auto index = keeps_index() ? store_.open(p_.kill_node) : nullptr;
  spawn_shards(index);
  namespaces_config how;
  how.shards = shards_;
  how.low_watermark = static_cast<double>(p_.low_watermark) / p_.slots;
  how.high_watermark = static_cast<double>(p_.high_watermark) / p_.slots;
  how.rest = p_.rest;
  how.longest_promise = world_.has(defect::forget_old_writers) ? -p_.rest : p_.promised();
  auto known = restore(index, how);
  if (!known)
    return false;
  namespaces_ = in_->keep(spawn_actor<namespaces>(in_->system(), how, known->namespaces, known->ranks));
  supervise();
  service_ = std::make_unique<metadata_service>(in_->system(), shards_, namespaces_, how.names);
  return true;
}

std::optional<known_namespaces> slot_node::restore(const std::shared_ptr<store::metadata_store>& index,
                                                   const namespaces_config& shards) {
  if (index) {
    auto restored = restore_index(in_->system(), *index, shards, options_, {});
    if (restored)
      return std::move(*restored);
    if (!store_.killed())
      world_.fail("restart", "the node does not start: " + to_string(restored.error()));
    return std::nullopt;
  }
  if (!world_.has(defect::forget_epoch))
    if (const auto left = leave_index_aside(options_); !left)
      world_.fail("restart", "the index cannot be left aside: " + to_string(left.error()));
  return known_namespaces{};
}

void slot_node::end_waiting() {
  for (const auto& [request, x] : std::exchange(waiting_, {}))
    tap::answer(x, caf::make_message(to_caf(error{errc::timeout, "a shard does not answer a start"})));
}

void slot_node::supervise() {
  node_children children;
  for (const auto& x : shards_)
    children.add_shard(x);
  children.add({"the namespaces actor", caf::actor_cast<caf::actor>(namespaces_), "it ends"});
  in_->keep(spawn_actor<node>(in_->system(), std::make_shared<const config::node_config>(options_), children));
}

void slot_node::check_restored() const {
  for (const auto& [name, page] : store_.promised())
    if (!restored_.contains(page))
      world_.fail("restart", "key " + to_string(page.key) + " was confirmed, and a crash has taken it back");
}

void slot_node::confirmed(rank_number rank, const std::vector<page_ref>& pages,
                          const std::vector<std::uint8_t>& codes) {
  for (std::size_t n = 0; n < pages.size(); ++n) {
    world_.count("confirm", static_cast<errc>(codes[n]));
    if (codes[n] == 0 && keeps_index())
      store_.promise({pages[n].key, rank, pages[n].where.slot});
  }
}

// -- what the checks look at ------------------------------------------------------------------------------------------

template <class T, class Ask>
result<T> slot_node::wait_for(Ask ask) {
  const process::hurry at_once(*in_, random_);
  const auto answered = std::make_shared<std::optional<result<T>>>();
  ask([answered](result<T> x) { answered->emplace(std::move(x)); });
  return *answered ? std::move(**answered) : result<T>(fail(errc::timeout, "there is no answer"));
}

template <class T, class Handle, class... Ts>
result<T> slot_node::ask_now(const Handle& to, Ts... xs) {
  return wait_for<T>([&](auto then) { ask<T>(in_->system(), to, std::move(then), std::move(xs)...); });
}

bool slot_node::is_live(const slot_page& page) {
  // A node whose start has failed, which ends the world, has no service yet.
  if (!in_ || !service_)
    return false;
  const auto found = wait_for<key_reply>([&](auto then) { service_->look_up(ns_, page.key, std::move(then)); });
  return found && std::any_of(found->pages.begin(), found->pages.end(), [&](const key_page& x) {
           return x.rank == page.rank && x.state == key_page::use::live && x.where.slot == page.slot;
         });
}

std::string slot_node::check_counts() {
  for (rank_number rank = 0; rank < ranks_.size(); ++rank) {
    const auto& r = ranks_[rank];
    if (!r.allocator)
      continue;
    const auto s = ask_now<allocator_stats>(r.allocator, stats_atom_v);
    if (!s)
      return "an allocator does not answer";
    if (s->free + s->reserved + s->live + s->quarantined != slots_[rank])
      return "slots by state do not add up to all slots";
    if (s->refused > 0)
      return "an allocator was asked for what makes no sense";
  }
  return {};
}

std::string slot_node::check_quiesced() {
  if (!running())
    return "the node is not running";
  if (open_calls_ > 0)
    return std::to_string(open_calls_) + " requests are not answered";
  if (!store_.idle())
    return "the store has not written all that it was given";
  for (const auto& x : shards_) {
    const auto s = ask_now<registry_stats>(x, stats_atom_v);
    if (!s || s->reservations + s->withheld_slots > 0)
      return "a shard still holds slots that have no page";
  }
  for (rank_number rank = 0; rank < p_.ranks; ++rank) {
    if (!ranks_[rank].allocator)
      continue;
    const auto s = ask_now<allocator_stats>(ranks_[rank].allocator, stats_atom_v);
    if (!s || s->reserved + s->quarantined > 0)
      return "rank " + std::to_string(rank) + ": slots are neither free nor live";
    if (s->live != pages_.live(rank))
      return "rank " + std::to_string(rank) + ": " + std::to_string(s->live) + " slots are live, and shards know " +
             std::to_string(pages_.live(rank));
  }
  return {};
}

} // namespace troupe::simulation
