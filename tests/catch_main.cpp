#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

namespace {

/// No test case takes so long, on any machine and under any sanitizer. ctest has limits of its own, which are shorter;
/// this one ends programs that are run by hand.
constexpr unsigned limit_seconds = 600;

std::array<char, 256> running{};

extern "C" void cancel(int) {
  constexpr char text[] = "\nthis test case hangs: ";
  if (::write(STDERR_FILENO, text, sizeof text - 1) < 0 ||
      ::write(STDERR_FILENO, running.data(), std::strlen(running.data())) < 0 || ::write(STDERR_FILENO, "\n", 1) < 0)
    std::_Exit(1);
  std::abort();
}

class time_limit final : public Catch::TestEventListenerBase {
public:
  using TestEventListenerBase::TestEventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    running.fill('\0');
    std::copy_n(info.name.begin(), std::min(info.name.size(), running.size() - 1), running.begin());
    std::signal(SIGALRM, cancel);
    ::alarm(limit_seconds);
  }
  void testCaseEnded(const Catch::TestCaseStats&) override { ::alarm(0); }
};

CATCH_REGISTER_LISTENER(time_limit)

} // namespace

#ifdef __SANITIZE_ADDRESS__
/// LeakSanitizer asks for this. CAF 0.17's broker for other nodes now and then stays when the actor system ends: it and
/// its own message about the next heartbeat hold each other. valgrind.supp names the same object, and nothing else.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:spawn_impl<caf::io::basp_broker\n";
}
#endif
