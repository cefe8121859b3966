#include "base/line_ring.hpp"
#include "tests/catch.hpp"

#include <string>
#include <vector>

namespace base_line_ring_test {

using namespace troupe;

TEST_CASE("line ring: a line ring keeps the newest lines in order", "[base]") {
  line_ring ring(3, 100);
  CHECK(ring.lines().empty());
  for (const auto* x : {"a", "b", "c", "d"})
    ring.add(x);
  CHECK(ring.lines() == std::vector<std::string>{"b", "c", "d"});
  CHECK(ring.bytes() == 3);
}

TEST_CASE("line ring: a line ring keeps no more bytes than its limit", "[base]") {
  line_ring ring(100, 10);
  ring.add("12345");
  ring.add("67890");
  CHECK(ring.lines().size() == 2);
  ring.add("x");
  CHECK(ring.lines() == std::vector<std::string>{"67890", "x"});
  ring.add(std::string(50, 'y'));
  CHECK(ring.lines() == std::vector<std::string>{std::string(10, 'y')});
  CHECK(ring.bytes() == 10);
}

} // namespace base_line_ring_test
