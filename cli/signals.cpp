#include "cli/signals.hpp"

#include <csignal>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// What a user sends to end the program.
sigset_t interruptions() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

sigset_t waited_for(hangup on_hangup) {
  auto set = interruptions();
  sigaddset(&set, SIGUSR1);
  if (on_hangup == hangup::wakes)
    sigaddset(&set, SIGHUP);
  return set;
}

} // namespace

signal_gate::signal_gate(hangup on_hangup) : on_hangup_(on_hangup) {
  // A limit on file sizes and a reader that is gone are errors of the write that meets them, and end no node.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  const auto set = waited_for(on_hangup_);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

wake_reason signal_gate::wait() const {
  const auto set = waited_for(on_hangup_);
  for (;;) {
    int number = 0;
    if (::sigwait(&set, &number) != 0)
      continue;
    if (number == SIGHUP)
      return wake_reason::reload;
    return number == SIGUSR1 ? wake_reason::node_ended : wake_reason::interrupted;
  }
}

bool signal_gate::interrupted() const {
  const auto set = interruptions();
  const timespec no_time{0, 0};
  return ::sigtimedwait(&set, nullptr, &no_time) > 0;
}

void signal_gate::node_ended() {
  ::kill(::getpid(), SIGUSR1);
}

void signal_gate::open() {
  // SIGUSR1 stays blocked: the node's own end sends it, also while it stops as it should.
  const auto set = interruptions();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

} // namespace troupe::cli
