#pragma once

#include "gpu/cuda/page_pipeline.hpp"
#include "gpu/fair_pool.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::cuda {

/// What all movers of this process for one device share: the streams, and the pipelines with their staging memory. So
/// an engine with many attachments, such as one for each pool of its KV cache, has that memory once. Calls that wait
/// for a pipeline are served in the order in which they came, from whatever mover; those of one direction do not wait
/// for those of the other.
///
/// Lives as long as one of its movers. Its functions are called by threads in which the device is current.
class device_ways {
public:
  static result<std::shared_ptr<device_ways>> of_device(int device);

  /// For a mover that makes this many calls of a direction at once: makes sure that there are as many pipelines, and
  /// two where there are several movers, all with memory for each mover. Waits for calls in progress. After an error,
  /// those that other movers use are as they were, or larger.
  result<void> reserve(move_direction direction, std::uint32_t calls, const pipeline_memory& memory);

  /// Waits for an event of an engine, which may take arbitrarily long. To be called without a pipeline: the engine may
  /// itself wait for a call that needs one.
  result<void> await(cudaEvent_t ready);

  /// Moves the pages of a valid list with one of the pipelines: see `page_pipeline::run`. `direct_bytes`: lists of at
  /// most this size are moved by kernels alone.
  result<void> run(move_direction direction, const moved_cache& what, std::span<block_move> moves,
                   page_encoding encoding, std::span<const locked_range> locked, std::uint64_t direct_bytes);

private:
  struct way {
    shared_streams streams;
    /// Bytes of calls in progress.
    std::atomic<std::uint64_t> bytes{0};
    fair_pool<page_pipeline> pipelines;
    /// What `reserve` has made: enough for each mover, in each pipeline. Guarded by `reserving_`.
    std::uint32_t made = 0;
    pipeline_memory memory;
  };
  /// What a thread needs to wait for an event of any kind, sleeping.
  struct event_wait {
    stream queue;
    event reached;

    static result<event_wait> make();
    result<void> until(cudaEvent_t ready) const;
  };

  way& of(move_direction direction) { return direction == move_direction::gather ? gathers_ : scatters_; }

  way gathers_;
  way scatters_;
  std::mutex reserving_;
  std::mutex mutex_;
  /// As many as there ever were threads that waited at once.
  std::vector<event_wait> idle_waits_;
};

} // namespace troupe::cuda
