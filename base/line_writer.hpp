#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// How much a `line_writer` buffers for a slow reader. It is not part of the config, which is read with the log in use.
/// It suffices for some minutes of a node in trouble.
struct line_writer_limits {
  std::size_t lines = 8192;
  std::size_t bytes = std::size_t{2} << 20U;
};

/// Writes lines to a descriptor from a thread of its own, so that callers never wait for a slow reader. Lines beyond
/// the limits are dropped, the oldest first: the newest explain why a node is in trouble. Dropped lines are counted,
/// and reported in their place as soon as the descriptor accepts lines again.
///
/// Where no thread can be started, the caller writes its line, as far as the descriptor accepts it at once, and each
/// line tries to start the thread again: such lines often explain why a program ends.
///
/// Thread-safe. A child of `fork` has no such thread: its lines are dropped.
class line_writer {
public:
  /// Makes the line that replaces dropped ones, with its newline. Called by the writer's thread.
  using notice = std::function<std::string(std::uint64_t dropped)>;

  /// `descriptor` must stay open as long as the process; dup2 may replace its file meanwhile.
  line_writer(int descriptor, line_writer_limits limits, notice make_notice);

  /// Waits at most `stop_patience` until the rest is written. A thread that hangs in a write is left alone.
  ~line_writer();
  line_writer(const line_writer&) = delete;
  line_writer& operator=(const line_writer&) = delete;

  /// Accepts a line, newline included. Waits only for other callers.
  void write(std::string_view line);

  /// Waits until everything accepted so far is written or dropped. Returns false if that takes longer than the limit.
  bool flush(std::chrono::milliseconds limit);

  /// Lines that were accepted and never written in full.
  std::uint64_t dropped() const;

  /// The longest wait of the destructor.
  static constexpr std::chrono::milliseconds stop_patience{1000};

private:
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace troupe
