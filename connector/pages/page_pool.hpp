#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "connector/stats.hpp"
#include "connector/types.hpp"
#include "messages/event_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::connector {

/// Pages by key, for an engine that has a pool of them, in host memory or on a GPU, and requests them itself, as SGLang
/// does. Calls wait for their answer, for a bounded time. Any number of threads at once.
class page_pool {
public:
  page_pool() = default;
  page_pool(const page_pool&) = delete;
  page_pool& operator=(const page_pool&) = delete;
  /// Calls `shutdown`.
  virtual ~page_pool() = default;

  /// As `scheduler_half::attached`.
  virtual result<void> attached() const = 0;

  /// The number of leading keys that are complete, with the pages of all ranks; they stay for the time of a lease. 0
  /// where the node does not answer within the limit.
  virtual std::size_t exist(std::span<const key_digest> keys, duration limit) = 0;

  /// For each key whether it is complete, also behind missing ones, as 1 or 0. Those that are found stay for the time
  /// of a lease, and do not count as used. On this node alone.
  virtual std::vector<std::uint8_t> exist_each(std::span<const key_digest> keys, duration limit) = 0;

  /// Reads the page of each key into a block of the pool. Returns for each key ok, or why the page was not read; then
  /// the block may have any content, as pages are verified while they are copied.
  /// Reads that have not ended after `limit` are cancelled, and no block is written after the return. Errors:
  /// invalid_argument, out_of_range where the numbers of keys and blocks differ, or a block does not exist; nothing is
  /// read then.
  virtual result<std::vector<errc>> get(std::span<const key_digest> keys, std::span<const block_id> blocks,
                                        duration limit) = 0;

  /// Saves a block as the page of each key. Consecutive keys are those of one sequence. Returns for each key ok, or
  /// exists where the page existed before, or why it was not saved. A save that was cancelled at the limit is never
  /// published.
  virtual result<std::vector<errc>> put(std::span<const key_digest> keys, std::span<const block_id> blocks,
                                        duration limit) = 0;

  /// As in `scheduler_half`.
  virtual bool wants_descriptions() const { return false; }
  virtual void describe(page_descriptions) {}

  /// The statistics since the last call.
  virtual connector_stats take_stats() = 0;

  /// Waits until the pool's memory is not accessed any more, for a bounded time. Later calls find and save nothing.
  virtual void shutdown() = 0;
};

} // namespace troupe::connector
