#include "cli/signals.hpp"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

namespace troupe::cli {

namespace {

sigset_t waited_for() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

} // namespace

signal_gate::signal_gate() {
  const auto set = waited_for();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

wake_reason signal_gate::wait() const {
  const auto set = waited_for();
  for (;;) {
    int number = 0;
    if (::sigwait(&set, &number) != 0)
      continue;
    return number == SIGUSR1 ? wake_reason::node_ended : wake_reason::interrupted;
  }
}

bool signal_gate::interrupted() const {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  const timespec no_time{0, 0};
  return ::sigtimedwait(&set, nullptr, &no_time) > 0;
}

void signal_gate::node_ended() { ::kill(::getpid(), SIGUSR1); }

void signal_gate::open() {
  const auto set = waited_for();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

} // namespace troupe::cli
