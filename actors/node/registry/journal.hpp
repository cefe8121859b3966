#pragma once

#include "actors/node/registry/registry_outbox.hpp"
#include "base/error.hpp"
#include "store/write_batch.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>

namespace troupe {

/// Tracks which changes of a shard are durable, and queues what waits for the others. Plain C++: the owner commits the
/// batches to a store and reports when they are written.
///
/// One batch is written at a time; changes that arrive meanwhile go into the next. So a slower disk gets larger
/// batches.
class journal {
public:
  /// Called with null when the changes are durable, or with the error if they cannot be made durable.
  using continuation = std::function<void(const error* failed)>;

  /// Takes the changes of an outbox. `sequence` is the number of the last one. `today` is stored with new namespaces.
  void append(std::span<const registry_change> changes, std::uint64_t sequence, std::chrono::sys_seconds today);

  /// Returns the next batch if none is being written and there are changes. The caller then calls `written`, or
  /// `refused` if the store did not take the batch.
  std::optional<store::write_batch> begin_write();
  void written();
  void refused(store::write_batch batch);

  /// Whether everything up to the last change so far is durable.
  bool durable() const noexcept { return appended_ == durable_; }

  /// Calls `then` when all changes so far are durable: at once if they are and nothing else waits. Waiting calls run in
  /// order.
  void when_durable(continuation then);

  /// Calls the continuations that are due. Call it after `written`; continuations may call `append` and `when_durable`.
  void serve();

  /// Calls all waiting continuations with this error.
  void fail(const error& why);

  std::size_t waiting() const noexcept { return waiting_.size(); }

  /// Whether the store has a batch that is not written yet.
  bool writing() const noexcept { return under_way_; }

private:
  struct waiting_one {
    std::uint64_t sequence = 0;
    continuation then;
  };

  store::write_batch pending_;
  /// Sequence numbers of the last change that was appended, that is being written, and that is durable.
  std::uint64_t appended_ = 0;
  std::uint64_t writing_ = 0;
  std::uint64_t durable_ = 0;
  bool under_way_ = false;
  std::deque<waiting_one> waiting_;
};

} // namespace troupe
