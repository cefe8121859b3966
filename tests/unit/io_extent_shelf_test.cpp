#include "io/extent_shelf.hpp"
#include "tests/catch.hpp"

#include <optional>
#include <vector>

namespace io_extent_shelf_test {

using namespace troupe;
using namespace troupe::io;

namespace {

using node = extent_shelf::node;

/// Extents 0, 1, 2 … that were expected on these NUMA nodes and lie there.
extent_shelf with(const std::vector<node>& nodes) {
  extent_shelf out;
  for (const auto& x : nodes)
    out.expect(x);
  for (std::uint32_t number = 0; number < nodes.size(); ++number)
    out.arrive(number, nodes[number], nodes[number]);
  return out;
}

/// Takes extents for these preferences in order, until the first one that gets none.
std::vector<std::uint32_t> lent(extent_shelf& shelf, const std::vector<node>& wishes) {
  std::vector<std::uint32_t> out;
  for (const auto& wish : wishes) {
    const auto number = shelf.take(wish);
    if (!number)
      break;
    out.push_back(*number);
  }
  return out;
}

using numbers = std::vector<std::uint32_t>;
constexpr std::optional<numa_node> any;

} // namespace

TEST_CASE("without a preferred NUMA node the latest returned extent is assigned first, then fresh ones in order",
          "[io][shelf]") {
  auto shelf = with({0, 1, 0, 1, 0});
  CHECK(lent(shelf, {any, any, any}) == numbers{0, 1, 2});
  shelf.come_back(0, 0);
  shelf.come_back(2, 0);
  CHECK(lent(shelf, {any, any, any, any, any}) == numbers{2, 0, 3, 4});
  CHECK(shelf.take(any) == std::nullopt);
}

TEST_CASE("with a preferred NUMA node its returned extents are assigned first, then its fresh ones, then the rest",
          "[io][shelf]") {
  auto shelf = with({0, 1, 0, 1, 0, 1});
  CHECK(lent(shelf, {any, any, any, any}) == numbers{0, 1, 2, 3});
  shelf.come_back(1, 1);
  shelf.come_back(3, 1);
  shelf.come_back(0, 0);
  CHECK(lent(shelf, {1, 1, 1}) == numbers{3, 1, 5});
  CHECK(lent(shelf, {1, 1, 1}) == numbers{0, 4});
}

TEST_CASE("ranks of two NUMA nodes get extents of their own while there are any", "[io][shelf]") {
  auto shelf = with({0, 1, 0, 1, 0, 1});
  CHECK(lent(shelf, {1, 0, 1, 0, 1, 0}) == numbers{1, 0, 3, 2, 5, 4});
}

TEST_CASE("a preferred NUMA node without extents does not prevent an assignment", "[io][shelf]") {
  auto shelf = with({0, 1});
  CHECK(lent(shelf, {7, 7, 7}) == numbers{0, 1});
  auto unknown = with({any, any});
  CHECK(lent(unknown, {0, 1}) == numbers{0, 1});
}

TEST_CASE("a request with a preferred NUMA node waits for memory that the host is about to provide there",
          "[io][shelf]") {
  extent_shelf shelf;
  shelf.expect(0);
  shelf.expect(1);
  CHECK(shelf.expected() == 2);
  CHECK(shelf.take(0) == std::nullopt);
  CHECK(shelf.take(any) == std::nullopt);
  shelf.arrive(0, 0, 0);
  CHECK(shelf.expected() == 1);
  CHECK(shelf.take(1) == std::nullopt);
  shelf.arrive(1, 1, 1);
  CHECK(shelf.expected() == 0);
  CHECK(shelf.take(1) == 1);
  CHECK(shelf.take(1) == 0);
}

TEST_CASE("a request with a preferred NUMA node does not wait for a host without memory", "[io][shelf]") {
  extent_shelf shelf;
  shelf.expect(0);
  shelf.expect(0);
  shelf.expect(1);
  shelf.expect(1);
  shelf.arrive(0, 0, 0);
  shelf.host_is_short(true);
  CHECK(shelf.take(1) == 0);
  CHECK(shelf.take(1) == std::nullopt);
  shelf.host_is_short(false);
  shelf.arrive(2, 0, 0);
  CHECK(shelf.take(1) == std::nullopt);
  CHECK(shelf.take(0) == 2);
  CHECK(shelf.expected() == 2);
}

TEST_CASE("an extent counts for the NUMA node where it actually lies", "[io][shelf]") {
  extent_shelf shelf;
  shelf.expect(1);
  shelf.expect(0);
  // The host had no memory left on that node.
  shelf.arrive(0, 1, 0);
  CHECK(shelf.expected() == 1);
  CHECK(shelf.take(0) == 0);
  shelf.come_back(0, 0);
  CHECK(shelf.take(1) == 0);
}

} // namespace io_extent_shelf_test
