#include "base/byte_budget.hpp"
#include "tests/catch.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace base_byte_budget_test {

using namespace troupe;

TEST_CASE("byte budget: bytes are granted up to the limit, all or nothing", "[base][byte_budget]") {
  byte_budget budget(100);
  CHECK(budget.take(60));
  CHECK_FALSE(budget.take(41));
  CHECK_FALSE(budget.take(std::numeric_limits<std::uint64_t>::max()));
  CHECK(budget.used() == 60);
  CHECK(budget.left() == 40);
  CHECK(budget.take(40));
  CHECK(budget.take(0));
  CHECK(budget.left() == 0);
  budget.give_back(60);
  CHECK(budget.used() == 40);
  CHECK(budget.limit() == 100);
}

TEST_CASE("byte budget: bytes beyond the limit count, and nothing is granted until they are returned",
          "[base][byte_budget]") {
  byte_budget budget(100);
  budget.take_anyway(150);
  CHECK(budget.used() == 150);
  CHECK(budget.left() == 0);
  CHECK_FALSE(budget.take(1));
  CHECK_FALSE(budget.take(0));
  budget.give_back(100);
  CHECK(budget.take(50));
}

TEST_CASE("byte budget: a lower limit leaves the rest to others, and reports what is in use", "[base][byte_budget]") {
  byte_budget budget(100);
  std::uint64_t taken = 7;
  CHECK(budget.take_within(80, 50, taken));
  CHECK(taken == 0);
  CHECK_FALSE(budget.take_within(80, 31, taken));
  CHECK(taken == 50);
  CHECK(budget.take_within(80, 30, taken));
  CHECK(budget.take(20));
}

TEST_CASE("byte budget: more than half of the limit is tight", "[base][byte_budget]") {
  byte_budget budget(100);
  REQUIRE(budget.take(50));
  CHECK_FALSE(budget.is_tight());
  REQUIRE(budget.take(1));
  CHECK(budget.is_tight());
}

TEST_CASE("byte budget: a claim returns its bytes when it ends", "[base][byte_budget]") {
  const auto budget = std::make_shared<byte_budget>(100);
  {
    REQUIRE(budget->take(60));
    const byte_claim claim(*budget, 60);
    CHECK(budget->used() == 60);
  }
  CHECK(budget->used() == 0);
  auto claim = shared_claim(budget, 60);
  REQUIRE(claim);
  const auto copy = claim;
  CHECK_FALSE(shared_claim(budget, 41));
  claim.reset();
  CHECK(budget->used() == 60);
}

TEST_CASE("byte budget: a claim larger than the whole budget is admitted alone, and keeps the budget",
          "[base][byte_budget]") {
  auto budget = std::make_shared<byte_budget>(100);
  auto small = shared_claim(budget, 1);
  CHECK_FALSE(shared_claim(budget, 1000));
  small.reset();
  const std::weak_ptr<byte_budget> kept = budget;
  auto large = shared_claim(std::move(budget), 1000);
  REQUIRE(large);
  REQUIRE_FALSE(kept.expired());
  CHECK(kept.lock()->used() == 100);
  CHECK_FALSE(shared_claim(kept.lock(), 1));
  large.reset();
  CHECK(kept.expired());
}

TEST_CASE("byte budget: threads together take no more than the limit", "[base][byte_budget]") {
  byte_budget budget(1000);
  std::vector<std::uint64_t> granted(4, 0);
  std::vector<std::thread> threads;
  for (auto& mine : granted)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i)
        if (budget.take(7)) {
          mine += 7;
          if (i % 3 != 0) {
            budget.give_back(7);
            mine -= 7;
          }
        }
    });
  for (auto& x : threads)
    x.join();
  std::uint64_t sum = 0;
  for (const auto x : granted)
    sum += x;
  CHECK(sum == budget.used());
  CHECK(sum == 1000 / 7 * 7);
}

} // namespace base_byte_budget_test
