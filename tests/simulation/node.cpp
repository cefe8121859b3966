#include "tests/simulation/node.hpp"

#include "io/page.hpp"

#include <utility>

namespace troupe::simulation {

node::node(environment& world, network& net)
    : world_(world), net_(net), random_(world.random.fork()), space_(world.p.space.id()),
      slot_bytes_(io::slot_bytes(world.p.space.geometry.page_bytes())), ledger_(world.p.ranks) {
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank)
    disks_.push_back(std::make_unique<disk>(world_, rank, slot_bytes_));
}

// -- life and death ---------------------------------------------------------------------------------------------------

void node::make_parts() {
  const auto& p = world_.p;
  parts_ = std::make_unique<parts>();
  for (std::uint32_t i = 0; i < p.shards; ++i) {
    registry_options options;
    options.shard = i;
    options.shard_count = p.shards;
    options.max_batch = p.batch_keys;
    options.max_lease = p.lease_max;
    options.max_reservation = p.reservation_max * (world_.has(defect::long_reservations) ? 10 : 1);
    options.max_leases = p.leases_max;
    options.max_leases_per_owner = p.leases_per_owner;
    options.max_reserved_pages = p.reserved_pages_max;
    options.tick_work = p.tick_work;
    options.max_eviction_looks = p.eviction_looks;
    options.hash_seed = random_.next();
    auto& shard = parts_->shards.emplace_back();
    shard.state = std::make_unique<registry_state>(options);
    if (!shard.state->add_namespace(p.space))
      world_.fail("a registry shard refuses the namespace");
  }
  parts_->book = lease_book(p.shards);
  for (rank_number rank = 0; rank < p.ranks; ++rank) {
    allocator_options slots;
    slots.slots = p.slots;
    slots.low_watermark = p.low_watermark;
    slots.high_watermark = p.high_watermark;
    slots.max_parked = p.parked_max;
    slots.first_generation = static_cast<generation_number>(random_.next() & 0x3fffffffU);
    io_worker_options io;
    io.slots = p.slots;
    io.slot_bytes = slot_bytes_;
    io.deadline_max = p.io_deadline;
    io.batch_pages_max = p.batch_pages;
    io.pages_in_flight_max = p.pages_in_flight_max;
    io.segment_bytes_max = p.buffers * slot_bytes_;
    auto& r = parts_->ranks.emplace_back();
    r.allocator = std::make_unique<allocator_state>(slots);
    r.worker = std::make_unique<io_worker_state>(io);
    r.committed.resize(p.slots);
  }
}

void node::start() {
  world_.trace("node starts");
  net_.start(node_process);
  for (const auto& d : disks_)
    if (d->damaged())
      d->replace();
  make_parts();
  for (std::uint32_t i = 0; i < world_.p.shards; ++i)
    keep_ticking_shard(i);
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank) {
    keep_ticking_allocator(rank);
    keep_ticking_worker(rank);
  }
}

void node::kill() {
  if (!running())
    return;
  world_.trace("node is killed");
  for (const auto& d : disks_)
    d->crash();
  net_.kill(node_process);
  ledger_.clear();
  parts_.reset();
}

void node::drain(duration limit) {
  if (!running() || parts_->draining)
    return;
  world_.trace("node drains");
  parts_->draining = true;
  for (auto& x : parts_->ranks)
    x.worker->drain();
  // What the program does when it is told to end: wait for the workers, then go.
  const auto until = world_.now() + limit;
  struct poll {
    static void again(node& self, timestamp until) {
      if (self.drained() || self.world_.now() >= until)
        self.kill();
      else
        self.net_.after(node_process, std::chrono::milliseconds(5), [&self, until] { again(self, until); });
    }
  };
  poll::again(*this, until);
}

bool node::drained() const {
  for (const auto& x : parts_->ranks)
    if (x.worker->in_flight() > 0)
      return false;
  return true;
}

// -- supervisor -------------------------------------------------------------------------------------------------------

void node::attach(connection_id via, const promise<owner_id>& answer) {
  if (parts_->draining) {
    answer.deliver(fail(errc::shutting_down, "the node is draining"));
    return;
  }
  const auto owner = random_.next() | 1U;
  parts_->clients.emplace(owner, via);
  answer.deliver(owner);
}

void node::leave(owner_id owner) {
  if (parts_->clients.contains(owner))
    client_gone(owner);
}

void node::peer_down(connection_id via) {
  std::vector<owner_id> gone;
  for (const auto& [owner, connection] : parts_->clients)
    if (connection == via)
      gone.push_back(owner);
  for (const auto owner : gone)
    client_gone(owner);
}

void node::client_gone(owner_id owner) {
  parts_->clients.erase(owner);
  if (world_.has(defect::forget_death))
    return;
  for (std::uint32_t i = 0; i < world_.p.shards; ++i)
    net_.send(supervisor(), shard(i), local, "owner died", [this, i, owner] { owner_died(i, owner); });
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank)
    net_.send(supervisor(), worker(rank), local, "owner died", [this, rank, owner] {
      parts_->ranks[rank].worker->owner_died(owner);
      if (world_.has(defect::drop_memory))
        drop_memory_of(rank, owner);
      flush_worker(rank);
    });
}

// -- checks -----------------------------------------------------------------------------------------------------------

std::string node::check_counts() const {
  if (!running())
    return {};
  const auto& p = world_.p;
  for (rank_number rank = 0; rank < p.ranks; ++rank) {
    const auto& r = parts_->ranks[rank];
    const auto s = r.allocator->stats();
    const auto name = "rank " + std::to_string(rank) + ": ";
    if (s.free + s.reserved + s.live + s.quarantined != p.slots)
      return name + "slots by state do not add up to all slots";
    if (s.refused > 0)
      return name + "the allocator was asked for what makes no sense";
    if (r.allocator->parked() > p.parked_max)
      return name + "more requests wait for slots than may";
    if (r.allocator->parked() > r.takes.size())
      return name + "the allocator holds a request that nobody made";
    if (r.worker->in_flight() > p.pages_in_flight_max)
      return name + "more pages are under way than may be";
    if (r.worker->in_flight() < disks_[rank]->in_flight())
      return name + "the disk transfers what the worker knows nothing of";
  }
  for (const auto& shard : parts_->shards) {
    const auto s = shard.state->stats();
    if (s.leases > p.leases_max)
      return "a shard has more leases than it may";
    if (s.reservations > p.reserved_pages_max)
      return "a shard has more reserved pages than it may";
  }
  return {};
}

void node::check_all() {
  if (!running())
    return;
  for (const auto& shard : parts_->shards)
    if (auto wrong = shard.state->check_invariants(); !wrong.empty())
      world_.fail("invariants", "registry: " + wrong);
  const auto i = next_check_++ % world_.p.shards;
  if (auto wrong = parts_->book.check(i, registry(i), space_, world_.now()); !wrong.empty())
    world_.fail("leases", std::move(wrong));
  std::vector<const registry_state*> shards;
  for (const auto& shard : parts_->shards)
    shards.push_back(shard.state.get());
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank) {
    const auto& allocator = *parts_->ranks[rank].allocator;
    if (auto wrong = allocator.check_invariants(); !wrong.empty())
      world_.fail("invariants", "allocator: " + wrong);
    if (auto wrong = ledger_.check(space_, rank, world_.p.slots, allocator, shards); !wrong.empty())
      world_.fail("slots", std::move(wrong));
  }
}

std::string node::check_at_rest() const {
  if (!running() || parts_->draining)
    return "the node is not running";
  if (!ledger_.at_rest())
    return "a message about slots is still under way";
  // Each entry's children, as all shards have them.
  std::map<key_digest, std::int64_t> children;
  for (const auto& x : parts_->shards) {
    const auto s = x.state->stats();
    if (s.leases > 0)
      return std::to_string(s.leases) + " leases are left";
    if (s.reservations > 0)
      return std::to_string(s.reservations) + " reserved pages are left";
    if (!x.plans.empty())
      return "a reservation still waits for slots";
    x.state->for_each_key(space_, [&](const key_info& key) {
      if (!key.parent.is_null())
        ++children[key.parent];
      children[key.key] -= key.children;
    });
  }
  for (const auto& [key, difference] : children)
    if (difference != 0)
      return "key " + to_string(key) + ": its shard's count of children is wrong by " + std::to_string(-difference);
  for (rank_number rank = 0; rank < world_.p.ranks; ++rank) {
    const auto& r = parts_->ranks[rank];
    const auto s = r.allocator->stats();
    const auto name = "rank " + std::to_string(rank) + ": ";
    if (s.reserved > 0)
      return name + std::to_string(s.reserved) + " slots are still reserved";
    if (s.quarantined > 0)
      return name + std::to_string(s.quarantined) + " slots are still in quarantine";
    if (!r.takes.empty() || r.allocator->parked() > 0)
      return name + "somebody still waits for slots";
    if (r.worker->in_flight() > 0 || !r.batches.empty() || !r.fences.empty())
      return name + "the io worker is not at rest";
    if (parts_->clients.empty() && (r.worker->stats().segment_bytes > 0 || !r.segments.empty()))
      return name + "page buffers of clients that are gone are still there";
  }
  return {};
}

std::uint64_t node::evicted_keys() const {
  std::uint64_t n = 0;
  if (running())
    for (const auto& shard : parts_->shards)
      n += shard.state->stats().evicted_keys;
  return n;
}

} // namespace troupe::simulation
