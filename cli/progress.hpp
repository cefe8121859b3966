#pragma once

#include "workload/replay/report.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace troupe::cli {

/// Shows on stderr what a replay does and how far it is: on a terminal one line that is drawn again and fits into its
/// width, else a line now and then. Used by one thread at a time.
class progress_display {
public:
  explicit progress_display(bool quiet);
  progress_display(const progress_display&) = delete;
  progress_display& operator=(const progress_display&) = delete;
  /// As `clear`.
  ~progress_display();

  /// How often to call `update`.
  std::chrono::milliseconds interval() const { return std::chrono::milliseconds(terminal_ ? 200 : 500); }

  /// What is being done now, which may take a while.
  void step(std::string_view what);

  /// The same again with other numbers: without a terminal, it is shown as often as `update` is.
  void wait(std::string_view what);

  void update(const replay::replay_progress& x, bool last);

  /// Takes the line away, so that something else can be written.
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
