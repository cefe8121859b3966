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

/// Which of a shard's changes are durable, and what waits for those that are not. Plain C++: its owner commits the
/// batches to a store, and says when they are written.
///
/// One batch is under way at a time, and what changes meanwhile goes into the next: the slower the disk, the larger the
/// batches.
class journal {
public:
  /// What is to be done when changes are durable, with a null error; or when they cannot be made so.
  using continuation = std::function<void(const error* failed)>;

  /// Takes the changes of an outbox, the last of which has this number. `today` is written beside new namespaces.
  void append(std::span<const registry_change> changes, std::uint64_t sequence, std::chrono::sys_seconds today);

  /// The next batch, if none is under way and there is anything to write. To be followed by `written`, or by `refused`
  /// if the store did not take it.
  std::optional<store::write_batch> begin_write();
  void written();
  void refused(store::write_batch batch);

  /// Everything up to the last change so far.
  bool durable() const noexcept { return appended_ == durable_; }

  /// Calls `then` when everything so far is durable: at once if it is and nobody waits. Those who wait are served in
  /// their order.
  void when_durable(continuation then);

  /// Serves those whose time has come. After `written`; calls may lead to further `append` and `when_durable`.
  void serve();

  /// Ends all waiting.
  void fail(const error& why);

  std::size_t waiting() const noexcept { return waiting_.size(); }

  /// A batch is at the store.
  bool writing() const noexcept { return under_way_; }

private:
  struct waiting_one {
    std::uint64_t sequence = 0;
    continuation then;
  };

  store::write_batch pending_;
  /// Numbers of the last change that came, that is being written, and that is durable.
  std::uint64_t appended_ = 0;
  std::uint64_t writing_ = 0;
  std::uint64_t durable_ = 0;
  bool under_way_ = false;
  std::deque<waiting_one> waiting_;
};

} // namespace troupe
