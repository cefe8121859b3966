#include "base/memory_budget.hpp"
#include "tests/catch.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace base_memory_budget_test {

using namespace troupe;

TEST_CASE("memory budget: a memory budget grants what is free, and its error states what is missing", "[memory]") {
  memory_budget budget(112);
  CHECK(budget.take(60, "a").has_value());
  CHECK(budget.has_room(38));
  CHECK_FALSE(budget.has_room(39));
  const auto refused = budget.take(39, "rank 3 with 5 pages");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::no_memory);
  for (const auto* part : {"rank 3 with 5 pages", "39 B", "60 B are in use, of 98 B", "registry.memory_bytes (112 B)"})
    CHECK(refused.error().text.find(part) != std::string::npos);
  CHECK(budget.used() == 60);
  CHECK(budget.take(38, "b").has_value());
  CHECK_FALSE(budget.take(1, "c"));
  // An eighth is left for leases.
  CHECK(budget.has_room_for_leases(14));
  CHECK_FALSE(budget.has_room_for_leases(15));
  budget.give_back(38);
  CHECK(budget.used() == 60);
  // Memory that is already in use counts, even beyond the limit, and overflowing sums do not get around it.
  budget.take_anyway(70);
  CHECK(budget.used() == 130);
  CHECK_FALSE(budget.has_room(0));
  CHECK_FALSE(budget.take(0, "d"));
  CHECK_FALSE(budget.take(~std::uint64_t{0}, "e"));
}

TEST_CASE("memory budget: a share of a memory budget is returned once, by its last owner", "[memory]") {
  const auto budget = std::make_shared<memory_budget>(112);
  {
    auto first = memory_share::of(budget, 70, "a");
    REQUIRE(first);
    CHECK_FALSE(memory_share::of(budget, 29, "b"));
    memory_share moved(std::move(*first));
    CHECK(moved.bytes() == 70);
    CHECK(budget->used() == 70);
    moved = std::move(*memory_share::of(budget, 20, "c"));
    CHECK(budget->used() == 20);
    memory_share following(budget);
    following.set(500);
    CHECK(budget->used() == 520);
    following.set(10);
    CHECK(budget->used() == 30);
  }
  CHECK(budget->used() == 0);
  // Without a budget every request is granted.
  CHECK(memory_share::of(nullptr, ~std::uint64_t{0}, "d"));
}

TEST_CASE("memory budget: concurrent threads never take more than the memory budget", "[memory]") {
  const auto budget = std::make_shared<memory_budget>(1000);
  std::atomic<int> exceeded{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        const auto share = memory_share::of(budget, 300, "x");
        if (budget->used() > 1000)
          ++exceeded;
      }
    });
  for (auto& x : threads)
    x.join();
  CHECK(exceeded == 0);
  CHECK(budget->used() == 0);
}

} // namespace base_memory_budget_test
