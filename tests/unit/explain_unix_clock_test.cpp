#include "http/explain/unix_clock.hpp"
#include "tests/catch.hpp"

#include <chrono>

namespace explain_unix_clock_test {

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr auto started = timestamp(1h);

/// A reading at `at`, when the system clock is that far ahead of the steady one.
unix_clock::reading read_at(timestamp at, unix_clock::unix_time ahead, duration took = 100ns) {
  return {at, at.time_since_epoch() + ahead + took / 2, at + took};
}

} // namespace

TEST_CASE("unix clock: the same point has the same Unix time in each answer", "[unix_clock]") {
  unix_clock clock;
  const auto first = clock.of(started, read_at(started, 1000h));
  CHECK(first > 1001h - 1us);
  CHECK(first < 1001h + 1us);
  for (int i = 1; i < 2000; ++i) {
    CAPTURE(i);
    CHECK(clock.of(started, read_at(started + i * 333us, 1000h + i * 7us, i * 1us)) == first);
  }
  CHECK(clock.of(started + 5s, read_at(started + 6s, 1000h)) == first + 5s);
}

TEST_CASE("unix clock: Unix time follows a system clock that was set", "[unix_clock]") {
  unix_clock clock;
  clock.of(started, read_at(started, 1000h));
  for (const auto ahead : {1001h, 999h}) {
    const auto set = clock.of(started, read_at(started + 1s, ahead));
    CHECK(set > ahead + 1h - 1us);
    CHECK(set < ahead + 1h + 1us);
  }
}

TEST_CASE("unix clock: a reading that took long does not change Unix time", "[unix_clock]") {
  unix_clock clock;
  const auto first = clock.of(started, read_at(started, 1000h));
  // The thread stood still between the clocks: in front of the system clock's, or behind it.
  CHECK(clock.of(started, {started + 1s, 1001h + 1s, started + 9s}) == first);
  CHECK(clock.of(started, {started + 1s, 1001h + 9s, started + 9s}) == first);
}

TEST_CASE("unix clock: Unix time is that of the system clock", "[unix_clock]") {
  unix_clock clock;
  const auto earliest = std::chrono::system_clock::now().time_since_epoch();
  const auto x = unix_clock::read();
  CHECK(x.wall >= earliest);
  CHECK(clock.of(x.before, x) == x.wall);
  CHECK(x.before <= x.after);
}

} // namespace explain_unix_clock_test
