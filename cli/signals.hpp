#pragma once

namespace troupe::cli {

/// Makes a limit on file sizes or a closed pipe an error of the failing write, instead of a signal that ends the
/// process.
void ignore_failing_writes();

/// Blocks SIGHUP, which would end a node that does not handle it yet: a `signal_gate` receives it later. To be called
/// first in a program that runs a node.
void hold_back_hangup();

/// Why a waiting node should stop waiting.
enum class wake_reason { interrupted, node_ended, reload };

/// Blocks SIGINT, SIGTERM, SIGHUP and SIGUSR1 in this thread and those it starts from now on, so that `wait` receives
/// them. Ignores the signals of failing writes, for the whole process. To be constructed before the first thread.
class signal_gate {
public:
  signal_gate();

  /// Waits until SIGINT or SIGTERM arrives, `node_ended` is called, or SIGHUP arrives.
  wake_reason wait() const;

  /// From any thread: ends `wait`.
  static void node_ended();

  /// From now on SIGINT and SIGTERM end the program as usual.
  void open();
};

} // namespace troupe::cli
