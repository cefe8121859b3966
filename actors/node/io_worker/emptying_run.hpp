#pragma once

#include "actors/node/io_worker/frame_table.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"

#include <optional>
#include <utility>

namespace troupe {

/// The result of emptying: ok, and the extent is no longer part of this rank; `timeout`, or `busy` (requests of this
/// rank wait for memory), and the extent stays.
struct emptying_end {
  errc code = errc::ok;
  frame_table::extent memory;
};

/// The progress of emptying an extent: its deadline, and what the last step has left to do.
///
/// Invariant: a step that has not called `pause` or `need_writes` leaves neither set, and neither is set after the end.
/// The end is returned once.
class emptying_run {
public:
  /// Begins; the first step is due. `must`: also when requests of this rank are short of memory.
  void begin(bool must, timestamp deadline) noexcept;
  /// Begins a step.
  void begin_step() noexcept;
  /// Why the run has to end without a result: `timeout`, or `busy` if requests are short of memory; ok: it continues.
  errc obstacle(bool short_of_memory, timestamp now) const noexcept;
  /// The step stops only because it has taken long enough.
  void pause() noexcept { paused_ = true; }
  /// The step stops because pages must be written first, whatever the write-back mode.
  void need_writes() noexcept { needs_writes_ = true; }
  /// The run has ended.
  void end(const emptying_end& x) noexcept;
  /// The run has ended, and its result is not needed.
  void end_quietly() noexcept { begin_step(); }

  bool paused() const noexcept { return paused_; }
  bool needs_writes() const noexcept { return needs_writes_; }
  std::optional<emptying_end> take_end() noexcept { return std::exchange(end_, std::nullopt); }

private:
  timestamp deadline_ = timestamp::min();
  bool must_ = false;
  bool paused_ = false;
  bool needs_writes_ = false;
  std::optional<emptying_end> end_;
};

} // namespace troupe
