#include "base/reuse_counts.hpp"
#include "tests/catch.hpp"

#include <cmath>

namespace reuse_counts_test {

using namespace troupe;

namespace {

float sum(const reuse_counts::by_age& x) {
  float out = 0;
  for (const auto n : x)
    out += n;
  return out;
}

} // namespace

TEST_CASE("reuse counts: ages fall into steps with the stated bounds", "[base]") {
  CHECK(reuse_counts::step_of(0) == 0);
  CHECK(reuse_counts::step_of(63) == 0);
  for (std::size_t step = 1; step < reuse_counts::ages; ++step) {
    CHECK(reuse_counts::step_of(reuse_counts::begin_of(step)) == step);
    CHECK(reuse_counts::step_of(reuse_counts::begin_of(step) - 1) == step - 1);
  }
  CHECK(reuse_counts::step_of(~std::uint64_t{0}) == reuse_counts::ages - 1);
}

TEST_CASE("reuse counts: counts survive encoding, and invalid data is refused", "[base]") {
  reuse_counts x;
  x.used[3][7] = 12.5F;
  x.ended[3][7] = 13;
  x.ended[11][43] = 1000.25F;
  x.ended[0][0] = 1e9F;
  auto numbers = x.numbers();
  const auto back = reuse_counts::of_numbers(numbers);
  REQUIRE(back);
  CHECK(back->used == x.used);
  CHECK(back->ended[11][43] == 1000.25F);
  CHECK(back->ended[0][0] == 4e6F);
  numbers.pop_back();
  CHECK_FALSE(reuse_counts::of_numbers(numbers));
  numbers.resize(numbers.size() + 2);
  CHECK_FALSE(reuse_counts::of_numbers(numbers));
  CHECK_FALSE(reuse_counts::of_numbers({}));
}

TEST_CASE("reuse counts: uses without matching ends do not count", "[base]") {
  reuse_counts x;
  x.used[0][5] = 4e6F;
  x.ended[0][5] = 3;
  x.used[2][9] = 7;
  x.used[4][1] = 2;
  x.ended[4][1] = 8;
  const auto back = reuse_counts::of_numbers(x.numbers());
  REQUIRE(back);
  CHECK(back->used[0][5] == 3);
  CHECK(back->used[2][9] == 0);
  CHECK(back->used[4][1] == 2);
  CHECK(back->ended == x.ended);
}

TEST_CASE("reuse counts: where keys arrive twice as fast, ages double", "[base]") {
  reuse_counts x;
  x.used[2][reuse_counts::step_of(1024)] = 10;
  x.ended[2][reuse_counts::step_of(1024)] = 30;
  CHECK(x.at_pace(1) == x);
  const auto twice = x.at_pace(2);
  CHECK(twice.used[2][reuse_counts::step_of(2048)] == Approx(10));
  CHECK(twice.ended[2][reuse_counts::step_of(2048)] == Approx(30));
  const auto half = x.at_pace(0.5);
  CHECK(half.used[2][reuse_counts::step_of(512)] == Approx(10));
  // Counts between steps are distributed, and none are lost at either end.
  for (const auto pace : {0.001, 0.3, 0.9, 1.1, 1.4, 3.0, 1000.0}) {
    reuse_counts all;
    for (std::size_t age = 0; age < reuse_counts::ages; ++age)
      all.ended[5][age] = static_cast<float>(age);
    CHECK(sum(all.at_pace(pace).ended[5]) == Approx(sum(all.ended[5])));
  }
  CHECK(x.seen() == 30);
  x += x;
  x *= 0.25F;
  CHECK(x.seen() == 15);
}

} // namespace reuse_counts_test
