#include "cli/interruption.hpp"

#include "base/log.hpp"
#include "base/threads.hpp"
#include "cli/signals.hpp"

#include <csignal>
#include <iostream>
#include <pthread.h>
#include <unistd.h>

namespace troupe::cli {

namespace {

/// How long flushing the log may take at the end.
constexpr std::chrono::milliseconds log_patience{200};

/// The signals of this object; SIGUSR1 ends its thread.
sigset_t heard(int other_signal) {
  sigset_t set;
  sigemptyset(&set);
  for (const auto x : {SIGINT, SIGTERM, SIGUSR1})
    sigaddset(&set, x);
  if (other_signal != 0)
    sigaddset(&set, other_signal);
  return set;
}

} // namespace

interruption::interruption(int other_signal) : other_signal_(other_signal) {
  ignore_failing_writes();
  const auto set = heard(other_signal_);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread(named(thread_name("troupe-signals"), [this] { hear(); }));
}

interruption::~interruption() {
  ::pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

void interruption::before_end(const std::function<std::function<void()>()>& prepare) {
  const std::lock_guard guard(mutex_);
  before_end_ = prepare();
}

void interruption::hear() {
  const auto set = heard(other_signal_);
  for (;;) {
    int number = 0;
    if (::sigwait(&set, &number) != 0)
      continue;
    if (number == SIGUSR1)
      return;
    if (!looked_for_ || caught_ != 0)
      end_now(number);
    caught_ = number;
  }
}

void interruption::end_now(int signal_number) {
  const std::lock_guard guard(mutex_);
  if (before_end_)
    before_end_();
  log::flush(log_patience);
  std::cerr << "troupe: ended by SIG" << ::sigabbrev_np(signal_number) << std::endl;
  // Not exit(): the other threads are still running.
  ::_exit(exit_code(signal_number));
}

} // namespace troupe::cli
