#pragma once

#include "replay/report.hpp"

#include <chrono>

namespace troupe::cli {

/// Shows how far a replay is: one line that is redrawn on a terminal, else a line now and then.
class progress_display {
public:
  explicit progress_display(bool quiet);

  /// How often to call `update`.
  std::chrono::milliseconds interval() const { return std::chrono::milliseconds(terminal_ ? 200 : 500); }

  void update(const replay::replay_progress& x, bool last);

private:
  bool quiet_;
  bool terminal_;
  timestamp shown_ = std::chrono::steady_clock::now();
};

/// What this process has used of processors, in seconds.
double processor_seconds();

} // namespace troupe::cli
