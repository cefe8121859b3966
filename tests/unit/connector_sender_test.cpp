#include "connector/worker/ordered_sender.hpp"
#include "tests/catch.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace connector_sender_test {

using namespace troupe::connector;

namespace {

/// Rules that want numbers sent, under a lock.
struct harness {
  template <class Send>
  void decide(std::vector<int> numbers, Send send) {
    std::unique_lock guard(lock);
    sender.send(guard, std::move(numbers), send);
    CHECK(guard.owns_lock());
  }

  std::mutex lock;
  ordered_sender<int> sender;
};

} // namespace

TEST_CASE("connector sender: decisions of several threads are sent in the order in which they were made",
          "[connector]") {
  harness d;
  std::mutex lock;
  std::condition_variable changed;
  bool second_has_decided = false;
  std::vector<int> sent;
  std::thread second;
  // While the first is still at its first number, the second decides, and is through.
  d.decide({1, 2}, [&](int number) {
    if (number == 1)
      second = std::thread([&] {
        d.decide({3}, [&](int) { FAIL("sent by the second thread, past the first"); });
        std::lock_guard guard(lock);
        second_has_decided = true;
        changed.notify_all();
      });
    std::unique_lock guard(lock);
    changed.wait(guard, [&] { return second_has_decided; });
    sent.push_back(number);
  });
  second.join();
  CHECK(sent == std::vector{1, 2, 3});
  d.decide({4}, [&](int number) { sent.push_back(number); });
  CHECK(sent == std::vector{1, 2, 3, 4});
}

TEST_CASE("connector sender: a decision made while sending is sent after the rest", "[connector]") {
  harness d;
  std::vector<int> sent;
  d.decide({1, 2}, [&](int number) {
    if (number == 1)
      d.decide({3}, [](int) { FAIL("sent inside of another sending"); });
    sent.push_back(number);
  });
  CHECK(sent == std::vector{1, 2, 3});
}

} // namespace connector_sender_test
