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
  /// relaxed or strict.
  durability level = durability::strict;
  /// With relaxed: how long a batch may wait for its sync.
  duration sync_interval = std::chrono::milliseconds(100);
  /// Accepted and not yet answered. A batch that is larger than the bytes is taken when nothing else is there.
  std::size_t max_batches = 1024;
  std::size_t max_bytes = std::size_t{64} << 20U;
  /// A group takes no further batch once it has this many bytes: who comes next waits for one group at most.
  std::size_t max_group_bytes = std::size_t{4} << 20U;
  /// How long a log that has no room is left alone before it is tried again: at first, and at most.
  duration first_pause = std::chrono::seconds(1);
  duration longest_pause = std::chrono::seconds(8);
};

/// A log that the queue writes to, from one thread.
class group_writer {
public:
  virtual ~group_writer() = default;

  /// Appends the batches in order, all or none. On success they survive the end of the process.
  virtual result<void> write(std::span<const write_batch> group) = 0;
  /// On success everything written so far survives a loss of power.
  virtual result<void> sync() = 0;
  /// After a write or sync that failed with `no_space`. On success the log takes more, and has all that it had taken
  /// before; `no_space` while there is no room yet; other errors are for good.
  virtual result<void> recover() = 0;
};

/// Turns batches from many threads into few writes of a log. One thread of its own takes what waits, writes it as one
/// group, syncs once if need be, and answers each batch, in order of submission.
///
/// Stops at the first failure: batches after it are answered with the same error, even if the log would take them,
/// because a batch must not be acknowledged when one before it may be lost. A disk that is full is no failure: what was
/// taken waits until there is room, and is written then. Only an end in the meantime fails it.
class commit_queue {
public:
  /// `writer` is used until `close` returns. io_error when the thread cannot be started.
  static result<std::unique_ptr<commit_queue>> start(const commit_queue_options& options, group_writer& writer);
  ~commit_queue();

  commit_queue(const commit_queue&) = delete;
  commit_queue& operator=(const commit_queue&) = delete;

  /// As `metadata_store::commit`.
  result<void> commit(write_batch&& batch, commit_callback done);

  /// Answers everything accepted, syncs, and ends the thread. The failure, if there was one. Not to be called by a
  /// callback.
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
  /// Writes and syncs what was taken; without the lock.
  result<void> carry_out();
  /// The same, as often as it takes while nothing is wrong but that there is no room.
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

  // The thread's own.
  std::vector<write_batch> group_;
  std::vector<commit_callback> answers_;
  /// When the oldest write without a sync has to be synced; nothing while all are.
  std::optional<clock::time_point> sync_at_;

  std::mutex close_mutex_;
  std::thread thread_;
};

} // namespace troupe::store
