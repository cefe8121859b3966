#include "tests/simulation/server.hpp"

#include "actors/node/allocator/allocator.hpp"
#include "actors/node/io_worker/io_worker.hpp"
#include "actors/node/reception/reception.hpp"
#include "actors/node/registry/registry.hpp"
#include "io/page.hpp"

#include <algorithm>
#include <utility>

namespace troupe::simulation {

namespace {

/// Shards look for what has run out, and for what dead clients had, every 200 ms, and give much back in portions.
constexpr auto notices_within = std::chrono::seconds(1);

} // namespace

server::server(environment& world)
    : world_(world), random_(world.random.fork()), space_(world.p.space.id()),
      slot_bytes_(io::slot_bytes(world.p.space.geometry.page_bytes())), pages_(world.p.ranks, world.p.slots),
      book_(world.p.shards) {
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank)
    disks_.push_back(std::make_unique<disk>(world_, rank, slot_bytes_));
}

server::~server() {
  kill();
}

// -- life and death ---------------------------------------------------------------------------------------------------

template <class Handle>
Handle server::tapped(const Handle& behind, tap_rules rules) {
  auto out = put_tap(in_->system(), in_->keep(behind), std::move(rules));
  taps_.push_back(caf::actor_cast<caf::strong_actor_ptr>(out));
  return out;
}

registry_options server::options_of_shard(std::uint32_t i) const {
  const auto& p = world_.p;
  registry_options out;
  out.shard = i;
  out.shard_count = p.shards;
  out.max_batch = p.batch_keys;
  out.max_lease = p.lease_max;
  out.max_reservation = p.reservation_max * (world_.has(defect::long_reservations) ? 10 : 1);
  out.max_leases = p.leases_max;
  out.max_leases_per_owner = p.leases_per_owner;
  out.max_reserved_pages = p.reserved_pages_max;
  out.tick_work = p.tick_work;
  out.max_eviction_looks = p.eviction_looks;
  out.hash_seed = run_;
  out.children_hold = std::chrono::hours(100); // nobody says what is untrue
  return out;
}

void server::spawn_rank(rank_number rank, const metrics_actor& meters) {
  const auto& p = world_.p;
  auto parts = std::make_shared<io_worker_parts>();
  parts->name = {space_, p.space.name, rank};
  parts->target = std::make_shared<completion_target>();
  auto store = std::make_unique<disk_store>(world_, *disks_[rank], pages_, rank, slot_bytes_,
                                            [this, rank, target = parts->target](auto done) {
                                              target->deliver(done);
                                              completed(rank);
                                            });
  auto& r = ranks_[rank];
  r.store = store.get();
  parts->store = std::move(store);
  parts->buffers = memory_.source(*parts->store);
  parts->metrics = meters;
  auto& io = parts->options;
  io.slots = p.slots;
  io.slot_bytes = slot_bytes_;
  io.deadline_max = p.io_deadline;
  io.batch_pages_max = p.batch_pages;
  io.pages_in_flight_max = p.pages_in_flight_max;
  io.segment_bytes_max = p.buffers * slot_bytes_;
  io.first_segment = random_.next() >> 32U;
  r.worker = tapped(spawn_actor<io_worker>(in_->system(), parts),
                    {[this, rank](passing& x) { return to_worker(rank, x); },
                     [this, rank](const passing& x, caf::message& a) { return from_worker(rank, x, a); }});
  allocator_options slots;
  slots.slots = p.slots;
  slots.low_watermark = p.low_watermark;
  slots.high_watermark = p.high_watermark;
  slots.max_parked = p.parked_max;
  slots.first_generation = static_cast<generation_number>(random_.next() & 0x3fffffffU);
  r.allocator = tapped(spawn_actor<allocator>(in_->system(), slots, space_, rank, r.worker),
                       {[this, rank](passing& x) { return to_allocator(rank, x); },
                        [this, rank](const passing& x, caf::message& a) { return from_allocator(rank, x, a); }});
}

void server::start() {
  const auto& p = world_.p;
  world_.trace("node starts");
  for (const auto& d : disks_)
    if (d->damaged())
      d->replace();
  ++run_;
  draining_ = false;
  in_ = std::make_unique<process>(world_, "the node");
  const auto meters = caf::actor_cast<metrics_actor>(make_deaf(in_->system()));
  for (std::uint32_t i = 0; i < p.shards; ++i) {
    const auto real = spawn_actor<registry>(in_->system(), options_of_shard(i), std::vector{p.space}, meters, nullptr);
    shard_ids_.push_back(real.id());
    shards_.push_back(tapped(real, {[this, i](passing& x) { return to_shard(i, x); },
                                    [this, i](const passing& x, caf::message& a) { return from_shard(i, x, a); }}));
  }
  gave_back_in_.assign(p.shards, 0);
  children_elsewhere_.assign(p.shards, {});
  shard_stats_.assign(p.shards, std::nullopt);
  ranks_.resize(p.ranks);
  for (rank_number rank = 0; rank < p.ranks; ++rank)
    spawn_rank(rank, meters);
  bind(meters);
}

void server::bind(const metrics_actor& meters) {
  const auto& p = world_.p;
  registry_peers peers;
  node_children children;
  children.spaces = {p.space};
  peers.shards = shards_;
  for (const auto& x : shards_)
    children.add_shard(x);
  for (rank_number rank = 0; rank < p.ranks; ++rank) {
    peers.allocators.push_back(ranks_[rank].allocator);
    peers.spaces.push_back(space_);
    peers.ranks.push_back(rank);
    children.add_rank({0, rank, p.slots, ranks_[rank].worker, ranks_[rank].allocator});
  }
  children.add_metrics(meters);
  asker_ = asker::make(in_->system());
  for (const auto& x : shards_) {
    caf::anon_send(x, bind_atom_v, peers);
    for (rank_number rank = 0; rank < p.ranks; ++rank)
      caf::anon_send(x, add_rank_request{space_, rank, p.slots, ranks_[rank].allocator, 0});
  }
  for (const auto& x : peers.allocators)
    caf::anon_send(x, bind_atom_v, peers);
  auto options = std::make_shared<config::node_config>();
  options->statistics_interval = duration::zero();
  options->memory.client_bytes = p.buffers * slot_bytes_;
  options->io.max_batch_pages = p.batch_pages;
  options->registry.max_batch_keys = p.batch_keys;
  options->registry.lease_max = p.lease_max;
  options->registry.reservation_deadline = p.reservation_max;
  options->drain_timeout = std::chrono::seconds(30);
  node_ = spawn_actor<troupe::node>(in_->system(), options, children);
  in_->keep(node_);
  reception_ = spawn_actor<troupe::reception>(in_->system(), node_);
}

void server::kill() {
  if (!running())
    return;
  world_.trace("node is killed");
  for (const auto& d : disks_)
    d->crash();
  for (const auto& x : std::exchange(lines_, {}))
    x->forget(line::node);
  for (const auto& x : taps_)
    static_cast<tap*>(x->get())->forget();
  taps_.clear();
  static_cast<asker*>(asker_->get())->forget();
  asker_ = nullptr;
  held_children_.clear();
  late_word_.reset();
  may_go_.clear();
  evicted_.clear();
  parents_.clear();
  said_parents_.clear();
  first_parents_.clear();
  disputed_.clear();
  shards_.clear();
  shard_ids_.clear();
  ranks_.clear();
  node_ = nullptr;
  reception_ = nullptr;
  in_.reset();
  pages_.clear();
  book_ = lease_book(world_.p.shards);
}

void server::add_line(std::shared_ptr<line> x) {
  std::erase_if(lines_, [](const auto& y) { return y->ended(line::node); });
  lines_.push_back(std::move(x));
}

void server::drain(duration limit) {
  if (!running() || std::exchange(draining_, true))
    return;
  world_.trace("node drains");
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(node_), caf::make_message(drain_atom_v),
            [this](caf::message&) { world_.count("node has drained"); });
  world_.schedule.after(limit, [this, run = run_] {
    if (run == run_)
      kill();
    else
      world_.schedule.idle();
  });
}

std::span<std::byte> server::memory_of(rank_number rank, std::uint64_t segment) const {
  if (rank >= ranks_.size())
    return {};
  const auto found = ranks_[rank].segments.find(segment);
  return found == ranks_[rank].segments.end() ? std::span<std::byte>{} : found->second.bytes;
}

std::optional<std::uint32_t> server::shard_of_sender(const caf::strong_actor_ptr& sender) const {
  if (sender)
    for (std::uint32_t i = 0; i < shard_ids_.size(); ++i)
      if (shard_ids_[i] == sender->id())
        return i;
  return std::nullopt;
}

// -- erased keys, and what is held ------------------------------------------------------------------------------------

owner_id server::erase_something() {
  if (!running())
    return 0;
  std::optional<lease_book::holding> found;
  const auto rank = static_cast<rank_number>(random_.below(world_.p.ranks));
  if (const auto where = disks_[rank]->busiest_slot(); where && !random_.one_in(4))
    found = book_.key_at(rank, *where);
  if (!found)
    found = book_.any_key(static_cast<std::uint32_t>(random_.below(world_.p.shards)), random_.next());
  if (!found)
    return 0;
  const auto i = shard_of(found->key, world_.p.shards);
  world_.trace("key is erased", {i, found->key.lo});
  world_.count("fault: erased key");
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]),
            caf::make_message(erase_request{space_, all_ranks, std::vector{found->key}}), [this](caf::message& answer) {
              if (const auto done = answer_as<result_codes>(answer); !done)
                world_.fail("codes", "a shard refuses to erase a key: " + to_string(done.error()));
            });
  return found->owner;
}

void server::ask_what_is_held() {
  auto& by = *static_cast<asker*>(asker_->get());
  for (std::uint32_t i = 0; i < shards_.size(); ++i) {
    shard_stats_[i].reset();
    by.ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]), caf::make_message(stats_atom_v),
           [this, i](caf::message& answer) {
             const auto stats = answer_as<registry_stats>(answer);
             if (!stats)
               return;
             shard_stats_[i] = *stats;
             const auto before = world_.now() - notices_within - in_->paused_in_all();
             const auto [least, most] = book_.count(i, world_.now(), before);
             if (stats->leases < least || stats->leases > most)
               world_.fail("leases", "shard " + std::to_string(i) + " has " + std::to_string(stats->leases) +
                                         " leases, and there are " + std::to_string(least) + " to " +
                                         std::to_string(most));
             book_.forget(i, before);
           });
    if (const auto held = book_.any_key(i, random_.next()))
      ask_who_holds(i, held->key);
  }
  for (auto& r : ranks_) {
    r.stats.reset();
    by.ask(caf::actor_cast<caf::strong_actor_ptr>(r.allocator), caf::make_message(stats_atom_v),
           [this](caf::message& answer) {
             const auto x = answer_as<allocator_stats>(answer);
             if (x && x->free + x->reserved + x->live + x->quarantined != world_.p.slots)
               world_.fail("slots", "slots by state do not add up to all slots of an allocator");
           });
    by.ask(caf::actor_cast<caf::strong_actor_ptr>(r.worker), caf::make_message(stats_atom_v),
           [&r](caf::message& answer) {
             if (const auto stats = answer_as<io_stats>(answer))
               r.stats = *stats;
           });
  }
}

void server::ask_who_holds(std::uint32_t i, const key_digest& key) {
  static_cast<asker*>(asker_->get())
      ->ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[i]), caf::make_message(key_request{space_, key}),
            [this, i, key](caf::message& answer) {
              const auto found = answer_as<key_reply>(answer);
              if (!found)
                return;
              const auto before = world_.now() - notices_within - in_->paused_in_all();
              const auto [least, most] = book_.count_of(i, key, world_.now(), before);
              if (found->leases < least || found->leases > most)
                world_.fail("leases", "key " + to_string(key) + " is held by " + std::to_string(found->leases) +
                                          " leases of its shard, and there are " + std::to_string(least) + " to " +
                                          std::to_string(most));
            });
}

bool server::has_said_what_is_held() const {
  return std::all_of(shard_stats_.begin(), shard_stats_.end(), [](const auto& x) { return x.has_value(); }) &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const auto& x) { return x.stats.has_value(); });
}

std::string server::check_at_rest() const {
  if (!running())
    return "the node is not there";
  if (auto wrong = pages_.at_rest(); !wrong.empty())
    return wrong;
  for (std::uint32_t i = 0; i < shard_stats_.size(); ++i) {
    const auto& x = shard_stats_[i];
    if (!x || x->leases > 0 || x->reservations > 0 || x->withheld_slots > 0)
      return "shard " + std::to_string(i) + (x ? " holds leases, reservations or slots" : " does not answer");
  }
  for (rank_number rank = 0; rank < ranks_.size(); ++rank)
    if (const auto& x = ranks_[rank].stats; !x || x->in_flight > 0 || disks_[rank]->in_flight() > 0)
      return "rank " + std::to_string(rank) + ": transfers are under way";
  return {};
}

} // namespace troupe::simulation
