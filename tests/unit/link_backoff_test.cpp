#include "actors/client/link/reconnect_backoff.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <set>

namespace link_backoff_test {

using namespace troupe;

namespace {

constexpr duration shortest = std::chrono::milliseconds(100);
constexpr duration longest = std::chrono::seconds(5);

} // namespace

TEST_CASE("back-off: doubles between its bounds, with jitter in the upper half", "[link_backoff]") {
  const auto seed = GENERATE(range(std::uint64_t{0}, std::uint64_t{20}));
  INFO("seed " << seed);
  reconnect_backoff backoff(shortest, longest, seed);
  auto step = shortest;
  for (int i = 0; i < 200; ++i) {
    const auto wait = backoff.next();
    CHECK(wait >= step / 2);
    CHECK(wait <= step);
    step = std::min(longest, 2 * step);
  }
  backoff.reset();
  const auto wait = backoff.next();
  CHECK(wait >= shortest / 2);
  CHECK(wait <= shortest);
}

TEST_CASE("back-off: clients that lost the same node do not return at the same time", "[link_backoff]") {
  std::set<duration> waits;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    waits.insert(reconnect_backoff(shortest, longest, seed).next());
  CHECK(waits.size() > 40);
}

TEST_CASE("back-off: reversed or equal bounds still work", "[link_backoff]") {
  reconnect_backoff equal(shortest, shortest, 1);
  reconnect_backoff swapped(longest, shortest, 1);
  for (int i = 0; i < 20; ++i) {
    CHECK(equal.next() <= shortest);
    const auto wait = swapped.next();
    CHECK(wait >= longest / 2);
    CHECK(wait <= longest);
  }
}

} // namespace link_backoff_test
