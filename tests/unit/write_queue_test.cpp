#include "actors/node/io_worker/write_queue.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <deque>

namespace write_queue_test {

using namespace troupe;
using namespace std::chrono_literals;
using entries = std::deque<write_queue::entry>;

constexpr timestamp t0{std::chrono::hours(1)};

TEST_CASE("write queue: pages are taken once, in the order in which they were added", "[write_queue]") {
  write_queue queue(1s, 60s);
  CHECK(queue.empty());
  CHECK_FALSE(queue.any_due());
  queue.add({3, 1});
  queue.add({1, 2});
  queue.add({2, 3});
  CHECK(queue.any_due());
  CHECK(queue.take() == write_queue::entry{3, 1});
  CHECK(queue.take_all() == entries{{1, 2}, {2, 3}});
  CHECK(queue.empty());
}

TEST_CASE("write queue: held pages are the first ones when they are released, in their order", "[write_queue]") {
  write_queue queue(1s, 60s);
  for (const std::uint32_t frame : {1U, 2U, 3U})
    queue.add({frame, 1});
  queue.hold();
  queue.hold();
  CHECK(queue.front() == write_queue::entry{3, 1});
  CHECK(queue.take() == write_queue::entry{3, 1});
  CHECK_FALSE(queue.any_due());
  CHECK_FALSE(queue.empty());
  queue.add({4, 1});
  queue.release();
  queue.release();
  CHECK(queue.take() == write_queue::entry{1, 1});
  queue.hold();
  CHECK(queue.take_all() == entries{{2, 1}, {4, 1}});
  CHECK(queue.empty());
}

TEST_CASE("write queue: a failed page is due again after the delay, behind those that are due", "[write_queue]") {
  write_queue queue(1s, 60s);
  queue.add_failed({1, 1}, t0);
  queue.add_failed({2, 1}, t0 + 1ms);
  CHECK(queue.any_failed());
  CHECK_FALSE(queue.any_due());
  CHECK_FALSE(queue.empty());
  queue.add({3, 1});
  queue.pass_time(t0 + 999ms);
  CHECK(queue.take_all() == entries{{3, 1}});
  queue.add({4, 1});
  queue.pass_time(t0 + 1s);
  CHECK(queue.take_all() == entries{{4, 1}, {1, 1}});
  CHECK(queue.any_failed());
  queue.pass_time(t0 + 2s);
  CHECK(queue.take_all() == entries{{2, 1}});
  CHECK(queue.empty());
}

TEST_CASE("write queue: a failure is remembered for its time, counted from the last one", "[write_queue]") {
  write_queue queue(1s, 60s);
  CHECK(queue.trouble() == errc::ok);
  queue.note_trouble(errc::io_error, t0);
  queue.note_trouble(errc::timeout, t0 + 30s);
  queue.pass_time(t0 + 89s);
  CHECK(queue.trouble() == errc::timeout);
  queue.pass_time(t0 + 90s);
  CHECK(queue.trouble() == errc::ok);
  // It concerns no page.
  CHECK(queue.empty());
}

} // namespace write_queue_test
