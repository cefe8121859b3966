#pragma once

namespace troupe::cli {

/// Why a program that waits should stop waiting.
enum class wake_reason { interrupted, node_ended };

/// Holds back SIGINT, SIGTERM and SIGUSR1 in this thread and those it starts from now on, so that `wait` gets them.
/// Ignores SIGPIPE and SIGXFSZ, for the whole process. To be made before the first thread.
class signal_gate {
public:
  signal_gate();

  /// Until SIGINT or SIGTERM arrives, or `node_ended` was called.
  wake_reason wait() const;

  /// The same without waiting: whether a signal is pending. It is taken.
  bool interrupted() const;

  /// From any thread: ends `wait`.
  static void node_ended();

  /// From now on SIGINT and SIGTERM end the program as usual.
  void open();
};

} // namespace troupe::cli
