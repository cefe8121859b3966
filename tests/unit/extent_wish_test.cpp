#include "actors/node/io_worker/extent_wish.hpp"
#include "tests/catch.hpp"

#include <chrono>

namespace extent_wish_test {

using namespace troupe;
using namespace std::chrono_literals;

constexpr timestamp t0{std::chrono::hours(1)};

TEST_CASE("extent wish: an extent is requested until it has arrived or was refused", "[extent_wish]") {
  extent_wish wish;
  CHECK_FALSE(wish.requested());
  CHECK(wish.request_or_wait(t0));
  CHECK(wish.requested());
  wish.added();
  CHECK_FALSE(wish.requested());
  wish.request();
  CHECK(wish.requested());
  wish.refused(false, t0);
  CHECK_FALSE(wish.requested());
}

TEST_CASE("extent wish: after a refusal it is not repeated for a second, unless one arrives", "[extent_wish]") {
  extent_wish wish;
  wish.refused(false, t0);
  CHECK_FALSE(wish.on_its_way());
  CHECK_FALSE(wish.request_or_wait(t0 + 999ms));
  CHECK_FALSE(wish.requested());
  CHECK(wish.may_request(t0 + 1s));
  wish.added();
  CHECK(wish.may_request(t0));
}

TEST_CASE("extent wish: an announced extent is waited for, for a bounded time", "[extent_wish]") {
  extent_wish wish;
  wish.refused(true, t0);
  CHECK(wish.on_its_way());
  // It is waited for without a request, and requested again soon.
  CHECK(wish.request_or_wait(t0 + 1ms));
  CHECK_FALSE(wish.requested());
  CHECK(wish.request_or_wait(t0 + 2ms));
  CHECK(wish.requested());
  // What is announced again and again does not extend the wait.
  wish.refused(true, t0 + 99ms);
  CHECK(wish.request_or_wait(t0 + 99ms));
  CHECK_FALSE(wish.request_or_wait(t0 + 100ms));
  // A refusal ends it; the next announcement begins another.
  wish.refused(false, t0 + 100ms);
  CHECK_FALSE(wish.on_its_way());
  wish.refused(true, t0 + 200ms);
  CHECK(wish.request_or_wait(t0 + 201ms));
  wish.added();
  CHECK_FALSE(wish.on_its_way());
}

} // namespace extent_wish_test
