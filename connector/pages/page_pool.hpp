#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "connector/stats.hpp"
#include "connector/types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::connector {

/// Pages by key, for an engine that has a pool of them in host memory and asks for them itself, as SGLang does. Calls
/// wait for their answer, for a bounded time. Any number of threads at once.
class page_pool {
public:
  page_pool() = default;
  page_pool(const page_pool&) = delete;
  page_pool& operator=(const page_pool&) = delete;
  /// As `shutdown`.
  virtual ~page_pool() = default;

  /// As `scheduler_half::attached`.
  virtual result<void> attached() const = 0;

  /// How many keys from the first on are there completely, with the pages of all ranks; they stay for the time of a
  /// lease. 0 where the node cannot be asked within the limit.
  virtual std::size_t exist(std::span<const key_digest> keys, duration limit) = 0;

  /// Reads the page of each key into a block of the pool: for each key ok, or why its block was not written. After
  /// `limit` what has not ended is given up, and nothing is written any more when this returns. Errors:
  /// invalid_argument, out_of_range where keys and blocks do not fit, or a block does not exist; nothing is read then.
  virtual result<std::vector<errc>> get(std::span<const key_digest> keys, std::span<const block_id> blocks,
                                        duration limit) = 0;

  /// Saves a block as the page of each key. Keys that follow each other are those of one sequence. For each key ok, or
  /// exists where the page was there before, or why it was not saved. What was given up at the limit is never
  /// published.
  virtual result<std::vector<errc>> put(std::span<const key_digest> keys, std::span<const block_id> blocks,
                                        duration limit) = 0;

  /// Since the last call.
  virtual connector_stats take_stats() = 0;

  /// Waits until nothing touches the pool's memory any more, for a bounded time. Later calls find and save nothing.
  virtual void shutdown() = 0;
};

} // namespace troupe::connector
