#pragma once

#include "workload/replay/report.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Shows the activity and progress of a replay on stderr: on a terminal one line that is redrawn and fits its width,
/// otherwise a line every few seconds. Used by one thread at a time.
class progress_display {
public:
  explicit progress_display(bool quiet);
  progress_display(const progress_display&) = delete;
  progress_display& operator=(const progress_display&) = delete;
  /// As `clear`.
  ~progress_display();

  /// How often to call `update`.
  std::chrono::milliseconds interval() const { return std::chrono::milliseconds(terminal_ ? 200 : 500); }

  /// Shows the current activity, which may take a while.
  void step(std::string_view what);

  /// Shows the same activity with other numbers: without a terminal, it is printed as often as `update` is.
  void wait(std::string_view what);

  void update(const replay::replay_progress& x, bool last);

  /// Removes the line, so that other text can be written.
  void clear();

private:
  void draw(std::string_view line);
  bool too_soon();

  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  timestamp shown_ = std::chrono::steady_clock::now();
};

} // namespace troupe::cli
