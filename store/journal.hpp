#pragma once

#include "base/error.hpp"
#include "store/write_batch.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

namespace troupe::store {

/// Tracks which changes of one owner are durable, and queues what waits for the others. Plain C++ without a clock, a
/// file or a thread: the owner commits the batches to a store, and reports when they are written. Belongs to one
/// thread.
///
/// One batch is written at a time; changes that arrive meanwhile go into the next. So a slower disk gets larger
/// batches.
class journal {
public:
  /// Called once: with null when the changes are durable, or with the error if they cannot be made durable.
  using continuation = std::function<void(const error* failed)>;

  /// The batch to which the owner adds changes.
  write_batch& pending() noexcept { return pending_; }
  const write_batch& pending() const noexcept { return pending_; }

  /// Returns the next batch if none is being written and there are changes. The caller then calls `written`, or
  /// `refused` if the store did not take the batch.
  std::optional<write_batch> begin_write();
  /// The batch is durable. Calls the continuations that are due, in order; they may add changes and call
  /// `when_durable`.
  void written();
  /// Puts the batch back, before later changes; nothing is durable by it.
  void refused(write_batch batch);

  /// Whether every change so far is durable.
  bool durable() const noexcept { return pending_.empty() && !under_way_; }

  /// Calls `then` when all changes so far are durable: at once if they are and nothing else waits. Waiting calls run in
  /// order.
  void when_durable(continuation then);

  /// Calls all waiting continuations with this error.
  void fail(const error& why);

  std::size_t waiting() const noexcept { return waiting_.size(); }

  /// Whether the store has a batch that is not written yet.
  bool writing() const noexcept { return under_way_; }

private:
  struct waiting_one {
    std::uint64_t batch = 0;
    continuation then;
  };

  write_batch pending_;
  /// Number of the pending batch; earlier ones are written, or being written.
  std::uint64_t next_ = 1;
  bool under_way_ = false;
  std::deque<waiting_one> waiting_;
};

} // namespace troupe::store
