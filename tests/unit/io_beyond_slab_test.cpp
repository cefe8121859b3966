#include "io/slab/beyond_slab.hpp"
#include "tests/catch.hpp"

#include <algorithm>

namespace io_beyond_slab_test {

using troupe::io::pages_beyond_slab;

TEST_CASE("beyond slab: a rank holds at least as many pages as the larger of memory and slab", "[io]") {
  for (std::uint64_t frames = 0; frames < 200; ++frames)
    for (std::uint64_t slots = 0; slots < 200; ++slots) {
      const auto beyond = pages_beyond_slab(frames, slots);
      CAPTURE(frames, slots, beyond);
      REQUIRE(beyond <= frames);
      REQUIRE(slots + beyond >= std::max(frames, slots));
      // Pages of the slab find a frame.
      REQUIRE((slots == 0 || frames == 0 || beyond < frames));
      // A rank with more memory never holds fewer pages.
      REQUIRE(beyond <= pages_beyond_slab(frames + 1, slots));
    }
}

TEST_CASE("beyond slab: memory is divided by the size of the slab", "[io]") {
  CHECK(pages_beyond_slab(40, 0) == 40);
  CHECK(pages_beyond_slab(40'000, 8'000) == 32'000);  // a copy of each page of the slab
  CHECK(pages_beyond_slab(40'000, 40'000) == 19'999); // half of it
  CHECK(pages_beyond_slab(40'000, 400'000) == 3'636); // nearly all frames for copies
  CHECK(pages_beyond_slab(1, 1) == 0);
}

} // namespace io_beyond_slab_test
