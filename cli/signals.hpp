#pragma once

namespace troupe::cli {

/// Why a program that waits should stop waiting.
enum class wake_reason { interrupted, node_ended, reload };

/// What SIGHUP does, which a terminal sends when it goes and an operator when files are to be read again.
enum class hangup { ends_program, wakes };

/// Holds back SIGINT, SIGTERM and SIGUSR1 in this thread and those it starts from now on, so that `wait` gets them.
/// Ignores SIGPIPE and SIGXFSZ, for the whole process. To be made before the first thread.
class signal_gate {
public:
  explicit signal_gate(hangup on_hangup = hangup::ends_program);

  /// Until SIGINT or SIGTERM arrives, or `node_ended` was called, or SIGHUP arrives that is to wake.
  wake_reason wait() const;

  /// The same without waiting: whether a signal is pending. It is taken.
  bool interrupted() const;

  /// From any thread: ends `wait`.
  static void node_ended();

  /// From now on SIGINT and SIGTERM end the program as usual.
  void open();

private:
  hangup on_hangup_;
};

} // namespace troupe::cli
