#include "cli/progress.hpp"

#include <iostream>
#include <sys/resource.h>
#include <unistd.h>

namespace troupe::cli {

progress_display::progress_display(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) != 0) {}

void progress_display::update(const replay::replay_progress& x, bool last) {
  const auto now = std::chrono::steady_clock::now();
  if (quiet_ || (!terminal_ && !last && now - shown_ < std::chrono::seconds(5)))
    return;
  shown_ = now;
  if (terminal_)
    std::cerr << '\r' << replay::progress_line(x) << "\x1b[K" << (last ? "\n" : "") << std::flush;
  else
    std::cerr << replay::progress_line(x) << '\n';
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& x) {
    return static_cast<double>(x.tv_sec) + static_cast<double>(x.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

} // namespace troupe::cli
