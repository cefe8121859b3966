#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe::cli {

/// Handles SIGINT and SIGTERM, and optionally one more signal, for a command that has work to do on its main thread,
/// where that may be in the middle of creating a slab. At first, a signal ends the program at once, with `128 + number`
/// as in a shell. After `is_looked_for`, the first signal is stored for the command, and a second one ends the program.
///
/// To be constructed before the first thread that must not be interrupted, as all later threads leave these signals to
/// this one. Ignores SIGPIPE and SIGXFSZ, for the whole process.
class interruption {
public:
  /// `other_signal`: the additional signal; 0: none.
  explicit interruption(int other_signal);
  interruption(const interruption&) = delete;
  interruption& operator=(const interruption&) = delete;
  ~interruption();

  /// Runs `prepare` to its end, even if a signal arrives. The function that it returns is executed before the program
  /// ends at once, in the signal thread; it replaces the previous one.
  void before_end(const std::function<std::function<void()>()>& prepare);

  /// From now on the command checks `caught` often enough.
  void is_looked_for() noexcept { looked_for_ = true; }

  /// The signal that has arrived since; 0: none.
  int caught() const noexcept { return caught_; }

  /// The exit code of the program after this signal.
  static int exit_code(int signal_number) noexcept { return 128 + signal_number; }

private:
  void hear();
  [[noreturn]] void end_now(int signal_number);

  const int other_signal_;
  std::atomic<bool> looked_for_{false};
  std::atomic<int> caught_{0};
  std::mutex mutex_;
  std::function<void()> before_end_;
  std::thread thread_;
};

} // namespace troupe::cli
