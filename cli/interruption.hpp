#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

namespace troupe::cli {

/// Hears SIGINT and SIGTERM, and another one if told so, for a command that has work to do on its main thread, where
/// that may be in the middle of making a slab. At first, a signal ends the program at once, with `128 + number` as a
/// shell has it. While the command looks for it itself, a signal waits for that; a second one ends the program all the
/// same.
///
/// To be made before the first thread that must not be hit, as all threads from then on leave these signals to this
/// one. Ignores SIGPIPE and SIGXFSZ, for the whole process.
class interruption {
public:
  /// The other signal that is heard; 0: none.
  explicit interruption(int other_signal);
  interruption(const interruption&) = delete;
  interruption& operator=(const interruption&) = delete;
  ~interruption();

  /// Runs `prepare` to its end, whatever signal comes. What it returns is done before the program ends at once, in the
  /// thread that hears signals; it replaces what was there.
  void before_end(const std::function<std::function<void()>()>& prepare);

  /// From now on the command looks at `caught` often enough.
  void is_looked_for() noexcept { looked_for_ = true; }

  /// The signal that came since; 0: none.
  int caught() const noexcept { return caught_; }

  /// What the program ends with after this signal.
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
