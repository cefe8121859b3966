#include "io/engine/command_queue.hpp"
#include "tests/catch.hpp"

namespace io_command_queue_test {

using namespace troupe::io;
using outcome = command_queue::outcome;

namespace {

outcome cancel(command_queue& queue, std::uint64_t tag) {
  return queue.put([&](command_queue::commands& c) { c.cancelled_tags.push_back(tag); });
}

outcome stop(command_queue& queue) {
  return queue.put([](command_queue::commands& c) { c.stop = true; });
}

} // namespace

TEST_CASE("command queue: commands are taken once, in order", "[io][command_queue]") {
  command_queue queue;
  command_queue::commands taken;
  cancel(queue, 1);
  cancel(queue, 2);
  queue.put([](command_queue::commands& c) { c.requests.push_back({.tag = 3}); });
  REQUIRE(queue.take(taken, true));
  CHECK(taken.cancelled_tags == std::vector<std::uint64_t>{1, 2});
  REQUIRE(taken.requests.size() == 1);
  CHECK(taken.requests[0].tag == 3);
  REQUIRE(queue.take(taken, true));
  CHECK(taken.cancelled_tags.empty());
  CHECK(taken.requests.empty());
}

TEST_CASE("command queue: only the first command after a sleep was announced wakes the thread", "[io][command_queue]") {
  command_queue queue;
  command_queue::commands taken;
  CHECK(cancel(queue, 1) == outcome::queued); // the thread has not begun
  REQUIRE(queue.take(taken, true));
  CHECK(cancel(queue, 2) == outcome::queued_while_asleep);
  CHECK(cancel(queue, 3) == outcome::queued);
  REQUIRE(queue.take(taken, true));
  queue.awake();
  CHECK(cancel(queue, 4) == outcome::queued);
  REQUIRE(queue.take(taken, true));
  CHECK(taken.cancelled_tags == std::vector<std::uint64_t>{4});
}

TEST_CASE("command queue: the queue is closed only when nothing is left to do", "[io][command_queue]") {
  command_queue queue;
  command_queue::commands taken;
  REQUIRE(queue.take(taken, true)); // idle, but not to stop
  stop(queue);
  REQUIRE(queue.take(taken, false)); // a request is in progress
  CHECK(taken.stop);
  queue.put([](command_queue::commands& c) { c.requests.emplace_back(); });
  REQUIRE(queue.take(taken, true));
  CHECK(taken.requests.size() == 1);
  queue.put([](command_queue::commands& c) { c.calls.emplace_back([] {}); });
  REQUIRE(queue.take(taken, true)); // a caller waits for it
  CHECK(taken.calls.size() == 1);
  cancel(queue, 1); // finds no request
  CHECK_FALSE(queue.take(taken, true));
  bool called = false;
  CHECK(queue.put([&](command_queue::commands&) { called = true; }) == outcome::closed);
  CHECK_FALSE(called);
}

} // namespace io_command_queue_test
