#include "io/memory/extent_free_list.hpp"
#include "tests/catch.hpp"

#include <optional>
#include <vector>

namespace io_extent_free_list_test {

using namespace troupe;
using namespace troupe::io;

namespace {

using node = extent_free_list::node;

/// Extents 0, 1, 2 … that were expected on these NUMA nodes and lie there.
extent_free_list with(const std::vector<node>& nodes) {
  extent_free_list out;
  for (const auto& x : nodes)
    out.expect(x);
  for (std::uint32_t number = 0; number < nodes.size(); ++number)
    out.arrive(number, nodes[number], nodes[number]);
  return out;
}

/// Takes extents for these preferences in order, until the first one that gets none.
std::vector<std::uint32_t> assigned(extent_free_list& free_list, const std::vector<node>& wishes) {
  std::vector<std::uint32_t> out;
  for (const auto& wish : wishes) {
    const auto number = free_list.take(wish);
    if (!number)
      break;
    out.push_back(*number);
  }
  return out;
}

using numbers = std::vector<std::uint32_t>;
constexpr std::optional<numa_node> any;

} // namespace

TEST_CASE("extent free list: without a preferred NUMA node the last returned extent is first, then fresh ones in order",
          "[io][shelf]") {
  auto free_list = with({0, 1, 0, 1, 0});
  CHECK(assigned(free_list, {any, any, any}) == numbers{0, 1, 2});
  free_list.come_back(0, 0);
  free_list.come_back(2, 0);
  CHECK(assigned(free_list, {any, any, any, any, any}) == numbers{2, 0, 3, 4});
  CHECK(free_list.take(any) == std::nullopt);
}

TEST_CASE("extent free list: a preferred NUMA node's returned extents are first, then its fresh ones, then the rest",
          "[io][shelf]") {
  auto free_list = with({0, 1, 0, 1, 0, 1});
  CHECK(assigned(free_list, {any, any, any, any}) == numbers{0, 1, 2, 3});
  free_list.come_back(1, 1);
  free_list.come_back(3, 1);
  free_list.come_back(0, 0);
  CHECK(assigned(free_list, {1, 1, 1}) == numbers{3, 1, 5});
  CHECK(assigned(free_list, {1, 1, 1}) == numbers{0, 4});
}

TEST_CASE("extent free list: ranks of two NUMA nodes get extents of their own while there are any", "[io][shelf]") {
  auto free_list = with({0, 1, 0, 1, 0, 1});
  CHECK(assigned(free_list, {1, 0, 1, 0, 1, 0}) == numbers{1, 0, 3, 2, 5, 4});
}

TEST_CASE("extent free list: a preferred NUMA node without extents does not prevent an assignment", "[io][shelf]") {
  auto free_list = with({0, 1});
  CHECK(assigned(free_list, {7, 7, 7}) == numbers{0, 1});
  auto unknown = with({any, any});
  CHECK(assigned(unknown, {0, 1}) == numbers{0, 1});
}

TEST_CASE(
    "extent free list: a request with a preferred NUMA node waits for memory that the host is about to provide there",
    "[io][shelf]") {
  extent_free_list free_list;
  free_list.expect(0);
  free_list.expect(1);
  CHECK(free_list.expected() == 2);
  CHECK(free_list.take(0) == std::nullopt);
  CHECK(free_list.take(any) == std::nullopt);
  free_list.arrive(0, 0, 0);
  CHECK(free_list.expected() == 1);
  CHECK(free_list.take(1) == std::nullopt);
  free_list.arrive(1, 1, 1);
  CHECK(free_list.expected() == 0);
  CHECK(free_list.take(1) == 1);
  CHECK(free_list.take(1) == 0);
}

TEST_CASE("extent free list: a request with a preferred NUMA node does not wait for a host without memory",
          "[io][shelf]") {
  extent_free_list free_list;
  free_list.expect(0);
  free_list.expect(0);
  free_list.expect(1);
  free_list.expect(1);
  free_list.arrive(0, 0, 0);
  free_list.host_is_short(true);
  CHECK(free_list.take(1) == 0);
  CHECK(free_list.take(1) == std::nullopt);
  free_list.host_is_short(false);
  free_list.arrive(2, 0, 0);
  CHECK(free_list.take(1) == std::nullopt);
  CHECK(free_list.take(0) == 2);
  CHECK(free_list.expected() == 2);
}

TEST_CASE("extent free list: an extent counts for the NUMA node where it actually lies", "[io][shelf]") {
  extent_free_list free_list;
  free_list.expect(1);
  free_list.expect(0);
  // The host had no memory left on that node.
  free_list.arrive(0, 1, 0);
  CHECK(free_list.expected() == 1);
  CHECK(free_list.take(0) == 0);
  free_list.come_back(0, 0);
  CHECK(free_list.take(1) == 0);
}

} // namespace io_extent_free_list_test
