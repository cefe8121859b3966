#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// How much a `line_writer` keeps for a reader that is slow. No part of the config, which is read with the log in use:
/// some minutes of a node in trouble, in memory that nobody misses.
struct line_writer_limits {
  std::size_t lines = 8192;
  std::size_t bytes = std::size_t{2} << 20U;
};

/// Writes lines to a descriptor from a thread of its own, so that who has a line to write never waits for who reads it.
/// Lines that wait beyond the limits are dropped, the oldest first: the newest say why a node is in trouble. What was
/// dropped is counted, and told in the place of what is missing as soon as the descriptor takes lines again.
///
/// Where no more threads may be made, a line is written by its caller, as far as the descriptor takes it at once, and
/// each line tries to start the thread again: what is said then is why a program ends.
///
/// Thread-safe. A child of `fork` has no such thread: there, lines are dropped.
class line_writer {
public:
  /// The line that stands for so many dropped ones, with its newline. Called by the writer's thread.
  using notice = std::function<std::string(std::uint64_t dropped)>;

  /// `descriptor` has to stay open as long as the process; it may become another file meanwhile, by dup2.
  line_writer(int descriptor, line_writer_limits limits, notice make_notice);

  /// Waits for at most `stop_patience` for what is left to be written. A thread that hangs in a write is left alone.
  ~line_writer();
  line_writer(const line_writer&) = delete;
  line_writer& operator=(const line_writer&) = delete;

  /// Takes a line, newline included. Waits for nothing but other callers.
  void write(std::string_view line);

  /// Waits until everything taken so far is written or dropped. False if it was not within the limit.
  bool flush(std::chrono::milliseconds limit);

  /// Lines that were taken, and never written in full.
  std::uint64_t dropped() const;

  /// How long the destructor waits.
  static constexpr std::chrono::milliseconds stop_patience{1000};

private:
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace troupe
