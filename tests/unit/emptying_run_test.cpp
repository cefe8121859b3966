#include "actors/node/io_worker/emptying_run.hpp"
#include "tests/catch.hpp"

#include <chrono>

namespace emptying_run_test {

using namespace troupe;
using namespace std::chrono_literals;

constexpr timestamp t0{std::chrono::hours(1)};

TEST_CASE("emptying run: it ends at its deadline, also where it must succeed", "[emptying_run]") {
  emptying_run run;
  for (const bool must : {false, true}) {
    run.begin(must, t0 + 1s);
    CHECK(run.obstacle(false, t0 + 999ms) == errc::ok);
    CHECK(run.obstacle(false, t0 + 1s) == errc::timeout);
    CHECK(run.obstacle(true, t0 + 1s) == errc::timeout);
  }
}

TEST_CASE("emptying run: a rank that is short of memory keeps the extent, unless it must not", "[emptying_run]") {
  emptying_run run;
  run.begin(false, t0 + 1s);
  CHECK(run.obstacle(true, t0) == errc::busy);
  run.begin(true, t0 + 1s);
  CHECK(run.obstacle(true, t0) == errc::ok);
}

TEST_CASE("emptying run: what a step leaves to do is that of the last step", "[emptying_run]") {
  emptying_run run;
  CHECK_FALSE(run.paused());
  run.begin(false, t0);
  CHECK(run.paused());
  run.begin_step();
  CHECK_FALSE(run.paused());
  run.pause();
  run.need_writes();
  CHECK(run.paused());
  CHECK(run.needs_writes());
  run.begin_step();
  CHECK_FALSE(run.paused());
  CHECK_FALSE(run.needs_writes());
}

TEST_CASE("emptying run: the end is returned once, and leaves nothing to do", "[emptying_run]") {
  emptying_run run;
  run.begin(false, t0);
  CHECK_FALSE(run.take_end());
  run.need_writes();
  run.end({errc::busy, {}});
  CHECK_FALSE(run.paused());
  CHECK_FALSE(run.needs_writes());
  const auto end = run.take_end();
  REQUIRE(end);
  CHECK(end->code == errc::busy);
  CHECK_FALSE(run.take_end());
}

} // namespace emptying_run_test
