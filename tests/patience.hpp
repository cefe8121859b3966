#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace troupe::test {

/// How long a test waits for an expected event. It is long enough for any machine.
inline constexpr auto test_patience = std::chrono::seconds(60);

/// Waits until the condition holds. A test that would wait for ever ends the whole program with a message: the awaited
/// event does not come, and destructors might wait for the same.
template <class Ready>
void await(std::condition_variable& changed, std::unique_lock<std::mutex>& held, Ready ready) {
  if (changed.wait_for(held, test_patience, ready))
    return;
  std::fputs("a test waits for what does not happen\n", stderr);
  std::abort();
}

/// Asks again and again whether it is so, with a pause between two questions. False if it is not after all patience.
template <class Ready>
bool eventually(Ready ready, std::chrono::microseconds pause = std::chrono::milliseconds(1)) {
  for (const auto until = std::chrono::steady_clock::now() + test_patience; !ready();) {
    if (std::chrono::steady_clock::now() >= until)
      return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

} // namespace troupe::test
