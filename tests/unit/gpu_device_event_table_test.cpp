#include "gpu/device_event_table.hpp"
#include "tests/catch.hpp"

#include <set>
#include <thread>
#include <vector>

namespace gpu_device_event_table_test {

using namespace troupe;

TEST_CASE("device events: a number names its event until it is removed and nothing afterwards", "[gpu][events]") {
  device_event_table table;
  int first = 0;
  int second = 0;
  const auto a = table.add(&first);
  const auto b = table.add(&second);
  CHECK(a != 0);
  CHECK(b != 0);
  CHECK(a != b);
  CHECK(table.find(a).value() == &first);
  CHECK(table.find(b).value() == &second);
  CHECK(table.size() == 2);
  table.remove(a);
  table.remove(a);
  table.remove(0);
  table.remove(~std::uint64_t{0});
  CHECK(table.size() == 1);
  for (const auto number : {a, std::uint64_t{0}, b + 1, ~std::uint64_t{0}, reinterpret_cast<std::uint64_t>(&second)}) {
    const auto found = table.find(number);
    REQUIRE_FALSE(found);
    CHECK(found.error().code == errc::invalid_argument);
    CHECK_FALSE(found.error().text.empty());
  }
  // A new event with the same number is distinct.
  const auto again = table.add(&first);
  CHECK(again != a);
  CHECK_FALSE(table.find(a));
  CHECK(table.find(again).value() == &first);
}

TEST_CASE("device events: several threads add and remove at once", "[gpu][events]") {
  device_event_table table;
  std::vector<std::vector<std::uint64_t>> numbers(4);
  std::vector<std::thread> threads;
  for (auto& mine : numbers)
    threads.emplace_back([&table, &mine] {
      for (int i = 0; i < 1000; ++i) {
        mine.push_back(table.add(&mine));
        if (table.find(mine.back()).value_or(nullptr) != &mine)
          mine.push_back(0); // seen below
        if (i % 2 == 0)
          table.remove(mine.back());
      }
    });
  for (auto& x : threads)
    x.join();
  std::set<std::uint64_t> all;
  for (const auto& mine : numbers)
    all.insert(mine.begin(), mine.end());
  CHECK(all.size() == 4000);
  CHECK_FALSE(all.contains(0));
  CHECK(table.size() == 2000);
}

} // namespace gpu_device_event_table_test
