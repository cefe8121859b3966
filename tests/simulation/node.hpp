#pragma once

#include "actors/node/allocator/allocator_state.hpp"
#include "actors/node/io_worker/io_worker_state.hpp"
#include "actors/node/registry/registry_state.hpp"
#include "io/segment.hpp"
#include "tests/simulation/disk.hpp"
#include "tests/simulation/lease_book.hpp"
#include "tests/simulation/ledger.hpp"
#include "tests/simulation/network.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace troupe::simulation {

/// Page buffers that a worker has made for a client.
struct opened_segment {
  std::uint64_t segment = 0;
  std::shared_ptr<io::segment> memory;
};

/// The serving node: the states of registry shards, allocators and io workers, and what their actors and the
/// supervisor do around them (actors/node/registry/registry.cpp, actors/node/allocator/allocator.cpp,
/// actors/node/io_worker/io_worker.cpp, actors/node/supervisor/node.cpp). Its disks outlive it.
class node {
public:
  node(environment& world, network& net);

  static constexpr address supervisor() { return {node_process, role::supervisor, 0}; }
  static constexpr address shard(std::uint32_t i) { return {node_process, role::shard, i}; }
  static constexpr address allocator(rank_number rank) { return {node_process, role::allocator, rank}; }
  static constexpr address worker(rank_number rank) { return {node_process, role::worker, rank}; }

  /// Starts empty, over what is on the disks.
  void start();
  /// kill -9.
  void kill();
  /// Refuses new batches, and ends when the last has ended or this time is over.
  void drain(duration limit);
  bool running() const noexcept { return parts_ != nullptr; }

  // -- what clients ask of it; each is called when the message has arrived -------------------------------------------

  void attach(connection_id via, const promise<owner_id>& answer);
  void leave(owner_id owner);
  void peer_down(connection_id via);

  void match(std::uint32_t shard, const match_request& x, const promise<match_reply>& answer);
  void locate(std::uint32_t shard, const locate_request& x, const promise<locate_reply>& answer);
  void release(std::uint32_t shard, const release_request& x, const promise<void>& answer);
  void reserve(std::uint32_t shard, const reserve_request& x, const promise<reserve_reply>& answer);
  void commit(std::uint32_t shard, const finish_request& x, const promise<finish_reply>& answer);
  void abort(std::uint32_t shard, const finish_request& x, const promise<finish_reply>& answer);
  void invalidate(std::uint32_t shard, const invalidate_request& x, const promise<finish_reply>& answer);

  void open_segment(rank_number rank, owner_id owner, std::uint64_t bytes, const promise<opened_segment>& answer);
  void transfer(rank_number rank, io::operation op, const io_batch& batch, const promise<io_reply>& answer);

  /// An administrator erases some key that is leased, often one that is being read. Who has leased it, or 0.
  owner_id erase_something();

  // -- what the checks look at ---------------------------------------------------------------------------------------

  disk& disk_of(rank_number rank) { return *disks_[rank]; }
  std::uint32_t clients() const noexcept { return static_cast<std::uint32_t>(parts_->clients.size()); }
  /// Cheap; after every step.
  std::string check_counts() const;
  /// Full scans.
  void check_all();
  /// Nothing is held by anybody, nothing is under way.
  std::string check_at_rest() const;
  std::uint64_t evicted_keys() const;

private:
  struct shard_parts {
    std::unique_ptr<registry_state> state;
    /// Who waits for the slots of a reservation.
    std::unordered_map<plan_id, std::vector<promise<reserve_reply>>> plans;
  };

  struct rank_parts {
    std::unique_ptr<allocator_state> allocator;
    std::unordered_map<std::uint64_t, promise<take_reply>> takes;
    std::uint64_t last_take = 0;
    std::unique_ptr<io_worker_state> worker;
    struct client_memory {
      owner_id owner = 0;
      std::shared_ptr<io::segment> bytes;
    };
    std::unordered_map<std::uint64_t, client_memory> segments;
    std::unordered_map<io_worker_state::batch_id, promise<io_reply>> batches;
    struct open_fence {
      std::vector<slot_ref> slots;
      promise<void> answer;
    };
    std::unordered_map<io_worker_state::fence_id, open_fence> fences;
    /// The worker has been told, so that it must not write any more.
    bool slab_is_damaged = false;
    /// Per slot, the generation of the page that was committed last.
    std::vector<generation_number> committed;
  };

  /// All that is lost when the process ends.
  struct parts {
    std::vector<shard_parts> shards;
    std::vector<rank_parts> ranks;
    std::map<owner_id, connection_id> clients;
    lease_book book{0};
    bool draining = false;
  };

  void make_parts();
  void client_gone(owner_id owner);
  void owner_died(std::uint32_t shard, owner_id owner);

  void tick_shard(std::uint32_t shard);
  void keep_ticking_shard(std::uint32_t shard);
  void keep_ticking_allocator(rank_number rank);
  void keep_ticking_worker(rank_number rank);

  void lease_located(std::uint32_t shard, const locate_request& x, const locate_reply& reply);
  void check_commit(std::uint32_t shard, rank_number rank, const ticket& token, slot_ref where);
  void granted(std::uint32_t shard, plan_id plan, const std::vector<slot_ref>& slots);
  void flush_shard(std::uint32_t shard);
  void tell_allocator(std::uint32_t shard, const slots_to_allocator& batch);
  void say(std::uint32_t shard, rank_number rank, slot_word word, const std::vector<slot_ref>& slots);
  void hear(rank_number rank, slot_word word, const std::vector<slot_ref>& slots);
  evict_reply evict(std::uint32_t shard, const evict_request& x);

  void take(rank_number rank, std::uint32_t count, const promise<take_reply>& answer);
  void flush_allocator(rank_number rank);
  void fence(rank_number rank, const std::vector<slot_ref>& slots);
  void ask_to_evict(rank_number rank, std::uint32_t wanted);
  void accept(rank_number rank, const char* verb, const std::vector<errc>& codes);

  void flush_worker(rank_number rank);
  void submit(rank_number rank, const io_batch& batch);
  void end_fence(rank_number rank, io_worker_state::fence_id fence);
  void end_fences_of(rank_number rank, slot_number slot);
  void drop_segment(rank_number rank, std::uint64_t segment);
  void drop_memory_of(rank_number rank, owner_id owner);
  bool drained() const;

  registry_state& registry(std::uint32_t i) { return *parts_->shards[i].state; }

  environment& world_;
  network& net_;
  random_source random_;
  namespace_id space_;
  std::uint64_t slot_bytes_;
  std::vector<std::unique_ptr<disk>> disks_;
  ledger ledger_;
  /// Of the shards, which one is compared with the book next.
  std::uint32_t next_check_ = 0;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe::simulation
