#include "io/memory/numa.hpp"
#include "io/page.hpp"
#include "tests/catch.hpp"

#include <cerrno>
#include <set>

namespace io_numa_test {

using namespace troupe;
using namespace troupe::io;

namespace {

using nodes = std::vector<numa_node>;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr std::uint64_t gib = std::uint64_t{1} << 30U;

} // namespace

TEST_CASE("numa: sets of NUMA nodes are parsed in the format of the kernel", "[io][numa]") {
  CHECK(numa_nodes_in("0") == nodes{0});
  CHECK(numa_nodes_in("0-1") == nodes{0, 1});
  CHECK(numa_nodes_in("0,2-4,1023") == nodes{0, 2, 3, 4, 1023});
  CHECK(numa_nodes_in("1-1") == nodes{1});
  CHECK(numa_nodes_in("") == nodes{});
}

TEST_CASE("numa: an invalid set of NUMA nodes is empty", "[io][numa]") {
  for (const auto* text : {"-", "-1", "1-", "2-1", "1,1", "2,1", "0-3,2", "0,", ",0", "0 1", "x", "0x", "1024",
                           "0-1024", "0-4294967295", "99999999999", "0\n"}) {
    INFO(text);
    CHECK(numa_nodes_in(text) == nodes{});
  }
}

TEST_CASE("numa: NUMA nodes are printed as text", "[io][numa]") {
  CHECK(numa_text({}) == "no NUMA node");
  CHECK(numa_text(nodes{3}) == "NUMA node 3");
  CHECK(numa_text(nodes{0, 1}) == "NUMA nodes 0 and 1");
  CHECK(numa_text(nodes{0, 1, 5}) == "NUMA nodes 0, 1 and 5");
}

TEST_CASE("numa: the reason for missing placement states the way out where there is one", "[io][numa]") {
  CHECK(why_not_placed(ENOSYS).find("has no NUMA support") != std::string::npos);
  CHECK(why_not_placed(EPERM).find("SYS_NICE") != std::string::npos);
  CHECK(why_not_placed(ENOMEM).find("mbind") != std::string::npos);
}

TEST_CASE("numa: a node number beyond the kernel limit is refused before a system call", "[io][numa]") {
  CHECK(prefer_numa_node({}, numa_nodes_max) == EINVAL);
}

TEST_CASE("numa: extents alternate between NUMA nodes", "[io][numa]") {
  const numa_stretches x({1, 4}, 16 * 2 * mib, 2 * mib, page_alignment);
  CHECK(x.stretch_bytes() == 2 * mib);
  for (std::uint64_t extent = 0; extent < 16; ++extent) {
    CHECK(x.node_at(extent * 2 * mib) == (extent % 2 == 0 ? 1 : 4));
    CHECK(x.node_at((extent + 1) * 2 * mib - 1) == x.node_at(extent * 2 * mib));
  }
  CHECK(numa_stretches({0}, gib, 64 * mib, 2 * mib).node_at(gib - 1) == 0);
}

TEST_CASE("numa: the number of stretches is bounded for any arena, and they have equal size", "[io][numa]") {
  const auto bytes = GENERATE(256 * gib, 256 * gib + 64 * mib, 4096 * gib, 65536 * gib);
  const numa_stretches x({0, 1, 2}, bytes, 64 * mib, 2 * mib);
  CHECK(x.stretch_bytes() % (64 * mib) == 0);
  CHECK((bytes + x.stretch_bytes() - 1) / x.stretch_bytes() <= numa_stretches::most);
  CHECK(bytes / x.stretch_bytes() >= numa_stretches::most / 2);
}

TEST_CASE("numa: a huge page lies on one NUMA node together with its extents", "[io][numa]") {
  // Several in a page, of which one may reach into the next.
  const auto extent_bytes = GENERATE(64 * mib, 72 * mib);
  const numa_stretches x({0, 1}, 8 * gib, extent_bytes, gib);
  CHECK(x.stretch_bytes() == gib);
  CHECK(x.node_at(gib - 1) == 0);
  CHECK(x.node_at(gib) == 1);
  // Larger than a page.
  CHECK(numa_stretches({0, 1}, 12 * gib, 3 * gib / 2, gib).stretch_bytes() == 2 * gib);
}

TEST_CASE("numa: the NUMA nodes of this host are sorted", "[io][numa]") {
  const auto found = usable_numa_nodes();
  if (found.empty())
    WARN("skipped: the kernel tells of no NUMA nodes");
  CHECK(nodes(found) == [&] {
    const std::set<numa_node> sorted(found.begin(), found.end());
    return nodes(sorted.begin(), sorted.end());
  }());
}

} // namespace io_numa_test
