#pragma once

#include "actors/node/io_worker/completion_target.hpp"
#include "actors/node/io_worker/io_worker_state.hpp"
#include "actors/node/io_worker/memory_dialogue.hpp"
#include "actors/support/latency_collector.hpp"
#include "actors/support/node_condition.hpp"
#include "base/next_tick.hpp"
#include "io/memory/extent_source.hpp"
#include "io/slab/page_store.hpp"
#include "messages/messages.hpp"

#include <deque>
#include <memory>
#include <optional>

namespace troupe {

/// Everything that an io worker owns. Created by the node before the actor, because opening a page store can fail.
struct io_worker_parts {
  /// The namespace and rank of the pages.
  slab_name name;
  std::uint64_t page_bytes = 0;
  /// The page store, which sends its completions to `target`. Null where pages live in memory only.
  std::unique_ptr<io::page_store> store;
  /// Whether its slots may have pages of an earlier run.
  bool has_pages = true;
  /// Assigns the memory for pages; outlives the worker.
  std::shared_ptr<io::extent_source> extents;
  /// The preferred NUMA node of that memory.
  std::optional<io::numa_node> numa_node{};
  std::shared_ptr<completion_target> target;
  io_worker_options options;
  metrics_actor metrics;
  /// Notified when the slab is damaged; may be null.
  std::shared_ptr<node_condition> condition;
  /// Finds memory when the arena has none left; may be null.
  memory_broker_actor broker;
  /// Set where the namespace may be closed while the node runs: then the worker returns its memory when it ends.
  bool returns_memory = false;
};

/// The actor that owns the pages of one rank: in memory assigned by the arena, and in the store, which is the slab file
/// with its lock and the engine with its thread. An exit message ends it, after which the engine has stopped. Before
/// that, `drain` rejects new requests and is answered when all pages are written and no transfer is in progress.
class io_worker : public io_worker_actor::base {
public:
  io_worker(caf::actor_config& config, std::shared_ptr<io_worker_parts> parts);

  const char* name() const override { return "io_worker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  /// A request for frames or a fill that waits for its answer.
  struct waiting_request {
    caf::response_promise promise;
    timestamp started;
  };

  timestamp now() const;
  /// Registers the request for an answer by `flush`, if the state has accepted it.
  template <class Reply>
  caf::result<Reply> wait_for(const result<io_worker_state::request_id>& begun);
  void flush();
  /// Gets the memory that is needed, and answers the allocator.
  void request_extents();
  /// Answers the request to return an extent when it is empty, or when it stays.
  void give_back();
  /// Finds the allocator of this rank, which is notified of the number of frames where slots depend on memory.
  void know_allocator(const registry_peers& peers);
  /// Reports the number of slots to the allocator, where it equals the number of frames; and for how many pages a
  /// sparse slab has room.
  void notify_allocator();
  /// Sends the broker what has changed in what this rank has and wants.
  void send_reports();
  void send_checks();
  void answer(io_worker_state::answered_frames& x);
  void answer(io_worker_state::answered_fill& x);
  /// Scrubbing, where it is configured (io_worker_scrubbing.cpp).
  void begin_scrub();
  void ask_what_to_scrub();
  void check_scrubbed();
  void report_scrub();
  void report_damage();
  void report_dropped();
  void send_samples();
  void check_slab();
  /// Reports to the node's condition when writes begin to fail, and when they work again.
  void report_writes();
  void schedule_tick();

  std::shared_ptr<io_worker_parts> parts_;
  io_worker_state state_;
  memory_dialogue memory_;
  page_checker_actor checker_;
  page_checker_actor scrub_checker_;
  /// Lives at least until the store has stopped.
  std::shared_ptr<std::byte> scrub_memory_;
  std::uint64_t reported_passes_ = 0;
  std::vector<registry_actor> shards_;
  bool bound_ = false;
  std::unordered_map<io_worker_state::request_id, waiting_request> requests_;
  std::unordered_map<io_worker_state::fence_id, caf::response_promise> fences_;
  std::vector<caf::response_promise> drains_;
  /// Notices to shards that a drain waits for: afterwards no shard lists a page that was dropped.
  std::size_t pending_reports_ = 0;
  /// The allocator's requests for frames, in the order in which `memory_` answers them.
  std::deque<caf::response_promise> growers_;
  /// The pending request to return an extent.
  std::optional<caf::response_promise> giving_;
  /// The disk space of a sparse slab; else null.
  std::shared_ptr<io::store_growth> growth_;
  /// The allocator, where it is notified.
  allocator_actor allocator_;
  latency_collector samples_;
  timestamp next_look_at_slab_ = timestamp::min();
  /// The next scheduled tick.
  next_tick tick_;
  /// The write error that was last reported to the node's condition.
  errc reported_write_trouble_ = errc::ok;
};

} // namespace troupe
