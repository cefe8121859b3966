#include "base/next_tick.hpp"
#include "tests/catch.hpp"

#include <chrono>

namespace next_tick_test {

using namespace troupe;

TEST_CASE("The next tick: one that has been overtaken leads to no further one") {
  const timestamp start{std::chrono::seconds(100)};
  const auto after = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  next_tick it;
  CHECK_FALSE(it.plan(timestamp::max()));
  CHECK(it.plan(after(10)));
  // One comes by then.
  CHECK_FALSE(it.plan(after(10)));
  CHECK_FALSE(it.plan(after(11)));
  CHECK(it.plan(after(2)));

  it.came(after(2));
  CHECK(it.plan(after(12)));
  // The first one of all.
  it.came(after(10));
  CHECK_FALSE(it.plan(after(20)));
  // Another one comes a little late.
  it.came(after(13));
  CHECK(it.plan(after(20)));
}

} // namespace next_tick_test
