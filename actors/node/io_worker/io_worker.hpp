#pragma once

#include "actors/node/io_worker/completion_target.hpp"
#include "actors/node/io_worker/io_worker_state.hpp"
#include "actors/support/latency_collector.hpp"
#include "base/node_condition.hpp"
#include "io/shared_memory.hpp"
#include "io/page_store.hpp"
#include "messages/messages.hpp"

#include <memory>

namespace troupe {

/// Everything an io worker owns. Made by the node before the actor, because opening a store of pages can fail.
struct io_worker_parts {
  /// Whose pages they are.
  slab_name name;
  /// Gives its completions to `target`.
  std::unique_ptr<io::page_store> store;
  /// Known to the store, which is to outlive it.
  std::unique_ptr<io::page_buffer_source> buffers;
  std::shared_ptr<completion_target> target;
  io_worker_options options;
  metrics_actor metrics;
  /// Is told when the slab is damaged; null if nobody asks.
  std::shared_ptr<node_condition> condition;
};

/// Reads and writes the pages of one rank, the only one to do so. Owns the store they lie in: the slab file, its lock
/// and the engine with its thread. Batches are answered when the kernel is done with their buffers. Ends by an exit
/// message, after which the engine has stopped; until then, `drain` refuses new batches and answers when the last has
/// ended.
class io_worker : public io_worker_actor::base {
public:
  io_worker(caf::actor_config& config, std::shared_ptr<io_worker_parts> parts);

  const char* name() const override { return "io_worker"; }
  void on_exit() override;

protected:
  behavior_type make_behavior() override;

private:
  struct waiting_batch {
    caf::response_promise promise;
    request_kind kind = request_kind::read;
    std::uint32_t pages = 0;
    timestamp started;
  };

  timestamp now() const;
  caf::result<segment_info> open_segment(owner_id owner, std::uint64_t bytes, std::int32_t memory_node);
  caf::result<io_reply> begin(io::operation op, const io_batch& batch);
  void flush();
  void send_samples();
  void check_slab();

  std::shared_ptr<io_worker_parts> parts_;
  io_worker_state state_;
  std::unordered_map<std::uint64_t, io::page_buffer_source::loan> segments_;
  std::unordered_map<io_worker_state::batch_id, waiting_batch> batches_;
  std::unordered_map<io_worker_state::fence_id, caf::response_promise> fences_;
  std::vector<caf::response_promise> drains_;
  latency_collector samples_;
};

} // namespace troupe
