#include "base/next_tick.hpp"
#include "tests/catch.hpp"

#include <chrono>

namespace next_tick_test {

using namespace troupe;

TEST_CASE("next tick: a tick that was superseded by an earlier one still serves its due time") {
  const timestamp start{std::chrono::seconds(100)};
  const auto after = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  next_tick it;
  CHECK_FALSE(it.plan(timestamp::max()));
  CHECK(it.plan(after(10)));
  // The tick arrives by then.
  CHECK_FALSE(it.plan(after(10)));
  CHECK_FALSE(it.plan(after(11)));
  CHECK(it.plan(after(2)));

  // This tick was sent by another part.
  it.came(after(1));
  CHECK_FALSE(it.plan(after(3)));
  it.came(after(2));
  CHECK_FALSE(it.plan(after(12)));
  for (int i = 3; i < 9; ++i) {
    CHECK(it.plan(after(i)));
    it.came(after(i));
    CHECK_FALSE(it.plan(after(12)));
  }
  // It arrives a little late.
  it.came(after(11));
  CHECK(it.plan(after(12)));
}

} // namespace next_tick_test
