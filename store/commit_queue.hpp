#pragma once

#include "store/metadata_store.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace troupe::store {

struct commit_queue_options {
  /// `relaxed` or `strict`.
  durability level = durability::strict;
  /// With `relaxed`: how long a batch may wait for its sync.
  duration sync_interval = std::chrono::milliseconds(100);
  /// Limits of accepted and unanswered batches. A batch that exceeds the bytes is accepted when the queue is empty.
  std::size_t max_batches = 1024;
  std::size_t max_bytes = std::size_t{64} << 20U;
  /// A group accepts no further batch once it has this many bytes: the next batch waits for one group at most.
  std::size_t max_group_bytes = std::size_t{4} << 20U;
  /// The pause before a full log is tried again: the first, and the longest.
  duration first_pause = std::chrono::seconds(1);
  duration longest_pause = std::chrono::seconds(8);
};

/// The log that the queue writes to, from one thread.
class group_writer {
public:
  virtual ~group_writer() = default;

  /// Appends the batches in order, all or none. After success they survive the end of the process.
  virtual result<void> write(std::span<const write_batch> group) = 0;
  /// After success everything written so far survives a power loss.
  virtual result<void> sync() = 0;
  /// Is called after a write or sync that failed with `no_space`. After success the log accepts more, and has
  /// everything that it had accepted before. Error: `no_space` while there is no room yet; other errors are permanent.
  virtual result<void> recover() = 0;
};

/// Combines batches from many threads into few writes of a log. A thread takes the waiting batches, writes them as one
/// group, syncs once if needed, and answers each batch, in order of submission.
///
/// It stops at the first failure: later batches get the same error, even if the log would accept them, because a batch
/// must not be acknowledged when an earlier one may be lost. A full disk is not a failure: accepted batches wait until
/// there is room, and are written then. They fail only if the queue is closed meanwhile.
class commit_queue {
public:
  /// `writer` is used until `close` returns. Error: `io_error` when the thread cannot be started.
  static result<std::unique_ptr<commit_queue>> start(const commit_queue_options& options, group_writer& writer);
  ~commit_queue();

  commit_queue(const commit_queue&) = delete;
  commit_queue& operator=(const commit_queue&) = delete;

  /// As `metadata_store::commit`.
  result<void> commit(write_batch&& batch, commit_callback done);

  /// Answers everything accepted, syncs, and ends the thread. Returns the failure, if there was one. Must not be called
  /// by a callback.
  result<void> close();

  store_stats stats() const;

private:
  using clock = std::chrono::steady_clock;
  using lock = std::unique_lock<std::mutex>;

  struct pending {
    write_batch batch;
    commit_callback done;
  };

  commit_queue(const commit_queue_options& options, group_writer& writer);

  std::optional<error> reason_to_refuse(std::size_t bytes) const;
  void run();
  void wait_for_work(lock& held);
  /// Moves the next batches from `waiting_` to `group_` and `answers_`.
  void take_group();
  /// Writes and syncs the group; called without the lock.
  result<void> carry_out();
  /// The same, repeated while the only failure is a full disk.
  result<void> carry_out_when_there_is_room(lock& held);
  result<void> sync();
  void settle(lock& held, const result<void>& outcome);
  bool sync_is_due() const;

  const commit_queue_options options_;
  group_writer& writer_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::deque<pending> waiting_;
  store_stats stats_;
  bool closing_ = false;

  // Used by the thread only.
  std::vector<write_batch> group_;
  std::vector<commit_callback> answers_;
  /// The time by which the oldest unsynced write must be synced; nothing if there is none.
  std::optional<clock::time_point> sync_at_;

  std::mutex close_mutex_;
  std::thread thread_;
};

} // namespace troupe::store
