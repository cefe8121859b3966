#pragma once

namespace troupe::cli {

/// A limit on file sizes and a reader that is gone become errors of the write that meets them, and end no process.
void ignore_failing_writes();

/// Holds back SIGHUP, which would end a node that is not yet there to hear it: a `signal_gate` finds it later. The
/// first call of a program that is to be a node.
void hold_back_hangup();

/// Why a node that waits should stop waiting.
enum class wake_reason { interrupted, node_ended, reload };

/// Holds back SIGINT, SIGTERM, SIGHUP and SIGUSR1 in this thread and those it starts from now on, so that `wait` gets
/// them. Ignores failing writes, for the whole process. To be made before the first thread.
class signal_gate {
public:
  signal_gate();

  /// Until SIGINT or SIGTERM arrives, or `node_ended` was called, or SIGHUP arrives.
  wake_reason wait() const;

  /// From any thread: ends `wait`.
  static void node_ended();

  /// From now on SIGINT and SIGTERM end the program as usual.
  void open();
};

} // namespace troupe::cli
