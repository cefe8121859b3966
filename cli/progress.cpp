#include "cli/progress.hpp"

#include "workload/replay/text_table.hpp"

#include <iostream>
#include <sys/ioctl.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// Interval of lines without a terminal.
constexpr std::chrono::seconds line_pause{5};

/// Columns for a line. They may change between calls. The last column stays free: if it is used, some terminals wrap.
std::size_t columns() {
  constexpr std::size_t usual = 80;
  winsize size{};
  const auto known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return (known ? size.ws_col : usual) - 1;
}

} // namespace

progress_display::progress_display(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) != 0) {}

progress_display::~progress_display() {
  clear();
}

void progress_display::draw(std::string_view line) {
  std::cerr << '\r' << line << "\x1b[K" << std::flush;
  drawn_ = true;
}

bool progress_display::too_soon() {
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < line_pause)
    return true;
  shown_ = now;
  return false;
}

void progress_display::step(std::string_view what) {
  if (quiet_)
    return;
  if (terminal_)
    draw(replay::fitting(what, columns()));
  else
    std::cerr << what << '\n';
}

void progress_display::wait(std::string_view what) {
  if (!terminal_ && too_soon())
    return;
  step(what);
}

void progress_display::update(const replay::replay_progress& x, bool last) {
  if (quiet_)
    return;
  if (terminal_) {
    draw(replay::progress_line(x, columns()));
    if (last)
      std::cerr << '\n';
    drawn_ = !last;
  } else if (last || !too_soon()) {
    std::cerr << replay::progress_line(x) << '\n';
  }
}

void progress_display::clear() {
  if (drawn_)
    std::cerr << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

} // namespace troupe::cli
