#pragma once

#include "io/engine/engine.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe::io {

/// The table of all requests of an engine that have not been completed: those that wait, in order, those given to the
/// kernel, and the deadlines of both. Plain data without threads or clock. Rows are reused; a kernel completion names
/// row and generation, so that a late or wrong one matches nothing.
///
/// Adding, starting and removing are O(1), and O(log n) for the deadline, which is cheap where deadlines come in order.
class operation_table {
public:
  using index = std::uint32_t;

  static constexpr index none = ~index{0};

  enum class state : std::uint8_t { free, waiting, running };

  /// Requests wait in the order in which they were added to their queue, independently of the other queue. The engine
  /// decides which queue a request belongs to.
  enum class queue_name : std::uint8_t { concurrent, serial };

  struct row {
    request what;
    /// Bytes that are already transferred.
    std::uint64_t done = 0;
    std::uint32_t generation = 0;
    /// Consecutive attempts without progress.
    std::uint32_t fruitless = 0;
    /// The status to complete a running row with after it was cancelled; `ok` if it was not.
    errc abandoned = errc::ok;
    operation_table::state state = operation_table::state::free;
    operation_table::queue_name queue = queue_name::concurrent;
    // Position in the heap of deadlines, and neighbours in the queue or the free list.
    index heap_position = none;
    index previous = none;
    index next = none;
  };

  /// Identifies the present use of a row in 62 bits: the upper two bits are left to the caller.
  std::uint64_t handle_of(index at) const noexcept;

  /// Appends the request to the waiting ones of its queue.
  index add(const request& what, queue_name where = queue_name::concurrent);

  /// The row of a handle; null if the handle does not name the present use of a running row.
  row* find_running(std::uint64_t handle) noexcept;

  static index index_of(std::uint64_t handle) noexcept { return static_cast<index>(handle); }

  row& at(index i) noexcept { return rows_[i]; }

  /// The oldest waiting row of the queue becomes running; `none` if none waits.
  index start_next(queue_name of = queue_name::concurrent) noexcept;

  /// Ends the row and its deadline.
  void remove(index i);

  /// Removes a row whose deadline has passed from the heap of deadlines; `none` if there is none.
  index take_expired(timestamp now);

  /// Sets or replaces the deadline of a row.
  void set_deadline(index i, timestamp deadline);

  std::optional<timestamp> next_deadline() const noexcept;

  std::uint32_t waiting(queue_name of = queue_name::concurrent) const noexcept { return queue(of).waiting; }
  std::uint32_t running(queue_name of = queue_name::concurrent) const noexcept { return queue(of).running; }
  /// The sum of the lengths of the running requests.
  std::uint64_t running_bytes(queue_name of) const noexcept { return queue(of).running_bytes; }
  bool empty() const noexcept { return used_ == 0; }

  /// Calls `f(index, row&)` for every row in use; `f` may remove the row it is given.
  template <class F>
  void for_each(F f) {
    for (index i = 0; i < rows_.size(); ++i)
      if (rows_[i].state != state::free)
        f(i, rows_[i]);
  }

private:
  struct alarm {
    timestamp deadline;
    index row;
  };

  struct request_queue {
    index first = none;
    index last = none;
    std::uint32_t waiting = 0;
    std::uint32_t running = 0;
    std::uint64_t running_bytes = 0;
  };

  request_queue& queue(queue_name of) noexcept { return queues_[static_cast<std::size_t>(of)]; }
  const request_queue& queue(queue_name of) const noexcept { return queues_[static_cast<std::size_t>(of)]; }

  void append(index i) noexcept;
  void unlink(index i) noexcept;
  void drop_deadline(index i) noexcept;
  void sift_up(std::uint32_t position) noexcept;
  void sift_down(std::uint32_t position) noexcept;
  void place(std::uint32_t position, const alarm& what) noexcept;

  std::vector<row> rows_;
  index free_ = none;
  std::array<request_queue, 2> queues_;
  std::uint32_t used_ = 0;
  /// A binary heap, the earliest deadline first.
  std::vector<alarm> alarms_;
};

} // namespace troupe::io
