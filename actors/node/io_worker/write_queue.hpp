#pragma once

#include "actors/node/io_worker/frame_number.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <deque>

namespace troupe {

/// The pages of a rank that are to be written to the slab: those that are due, in the order in which they were added,
/// and those whose write has failed, until the time of their retry. Remembers for a while that writes fail.
///
/// Entries can be held: they are due, and others are taken before them.
///
/// Invariant: every entry that was added or failed is returned once, by `take` or `take_all`, and none before its time;
/// entries that wait for a retry are in the order of its time, since the delay is always the same. An entry may have
/// become void, because its page was dropped or moved: the caller compares the turn with that of the frame.
class write_queue {
public:
  struct entry {
    frame_number frame = no_frame;
    /// The turn of the frame when the entry was made.
    std::uint32_t turn = 0;

    friend bool operator==(const entry&, const entry&) = default;
  };

  /// `retry`: the delay before a failed write is due again. `trouble_time`: the time for which writes count as failing
  /// after a failed one.
  write_queue(duration retry, duration trouble_time) : retry_(retry), trouble_time_(trouble_time) {}

  /// The page is due.
  void add(const entry& x) { due_.push_back(x); }
  /// The write of the page has failed: it is due again after the delay.
  void add_failed(const entry& x, timestamp now) { failed_.push_back({x, now + retry_}); }
  /// Makes those entries due whose delay has passed, behind those that are due already, and forgets old failures.
  void pass_time(timestamp now);

  bool any_due() const noexcept { return !due_.empty(); }
  bool any_failed() const noexcept { return !failed_.empty(); }
  bool empty() const noexcept { return due_.empty() && held_.empty() && failed_.empty(); }
  /// The first entry that is due; there must be one.
  const entry& front() const { return due_.front(); }
  /// Takes it.
  entry take();
  /// Takes all entries that are due, held ones included.
  std::deque<entry> take_all();
  /// Holds the first entry that is due.
  void hold() { held_.push_back(take()); }
  /// Held entries are the first ones again, in their order.
  void release();
  bool any_held() const noexcept { return !held_.empty(); }

  /// A write to the slab has failed with this code.
  void note_trouble(errc code, timestamp now);
  /// The code of the last failed write; ok if there was none, or if its time had passed at the last `pass_time`.
  errc trouble() const noexcept { return trouble_; }

private:
  struct failed_entry {
    entry what;
    timestamp not_before;
  };

  duration retry_;
  duration trouble_time_;
  std::deque<entry> due_;
  std::deque<entry> held_;
  std::deque<failed_entry> failed_;
  errc trouble_ = errc::ok;
  timestamp trouble_ends_{};
};

} // namespace troupe
