#include "cli/signals.hpp"

#include <csignal>
#include <pthread.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// The signals by which a user ends the program.
sigset_t interruptions() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

sigset_t waited_for() {
  auto set = interruptions();
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGHUP);
  return set;
}

} // namespace

void ignore_failing_writes() {
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

void hold_back_hangup() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

signal_gate::signal_gate() {
  ignore_failing_writes();
  const auto set = waited_for();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

wake_reason signal_gate::wait() const {
  const auto set = waited_for();
  for (;;) {
    int number = 0;
    if (::sigwait(&set, &number) != 0)
      continue;
    if (number == SIGHUP)
      return wake_reason::reload;
    return number == SIGUSR1 ? wake_reason::node_ended : wake_reason::interrupted;
  }
}

void signal_gate::node_ended() {
  ::kill(::getpid(), SIGUSR1);
}

void signal_gate::open() {
  // SIGUSR1 stays blocked: the node's own end sends it, also during a regular stop.
  const auto set = interruptions();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

} // namespace troupe::cli
