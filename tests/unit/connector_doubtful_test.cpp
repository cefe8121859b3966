#include "base/identifiers.hpp"
#include "connector/scheduler/doubtful_blocks.hpp"
#include "tests/catch.hpp"
#include "tests/unit/connector_support.hpp"

#include <vector>

namespace troupe::test::connector_doubtful_test {

namespace {

using connector::doubtful_blocks;
using blocks = std::vector<block_id>;

/// Four blocks, of which the first was there, two are loaded and the last is computed upon them.
const blocks loading{1, 2, 3, 4};

} // namespace

TEST_CASE("connector doubtful: a load marks its blocks and those after them as doubtful until it has ended",
          "[connector]") {
  doubtful_blocks x;
  CHECK(x.empty());
  x.load_begins(std::span(loading).subspan(1));
  CHECK_FALSE(x.contains(1));
  CHECK(x.contains(2));
  CHECK(x.contains(4));
  CHECK(x.run(loading, 3, 4) == 1);
  x.load_ended(loading, 1, {});
  CHECK(x.empty());
  CHECK(x.run(loading, 4, 5) == 4);
}

TEST_CASE("connector doubtful: blocks that other requests compute from doubtful ones are doubtful as well",
          "[connector]") {
  doubtful_blocks x;
  x.load_begins(std::span(loading).subspan(1));
  x.run(loading, 3, 4);
  const blocks shares{1, 2, 20, 21};
  CHECK(x.run(shares, 2, 4) == 1);
  // Only the last block is still held, as with a sliding window.
  const blocks far{null_block, null_block, null_block, 21, 30};
  CHECK(x.run(far, 4, 5) == 3);
  const blocks apart{1, 40};
  CHECK(x.run(apart, 1, 2) == 2);
  SECTION("nothing is doubtful after a successful load") {
    x.load_ended(loading, 1, {});
    CHECK(x.empty());
  }
  SECTION("after a failed load each block has to be computed again in the right order") {
    x.load_ended(loading, 1, 2);
    CHECK_FALSE(x.contains(2)); // was filled
    CHECK(x.contains(3));
    CHECK(x.run(far, 5, 6) == 3);
    CHECK(x.run(loading, 2, 4) == 4);
    CHECK_FALSE(x.contains(3));
    CHECK(x.contains(20));
    CHECK(x.run(shares, 2, 4) == 4);
    CHECK(x.run(far, 3, 5) == 5);
    CHECK(x.empty());
  }
}

TEST_CASE("connector doubtful: a bad block that is not computed again makes later users doubtful", "[connector]") {
  doubtful_blocks x;
  x.load_begins(std::span(loading).subspan(1));
  x.run(loading, 3, 4);
  x.load_ended({}, 0, 1); // the request has been preempted
  const blocks finds{1, 2, 50};
  CHECK(x.run(finds, 2, 3) == 1);
  CHECK(x.contains(50));
  // A block that is reallocated holds what its new request loads or computes.
  const blocks given{50};
  x.load_begins(given);
  x.load_ended(given, 0, {});
  CHECK_FALSE(x.contains(50));
  CHECK(x.run(blocks{4, 3, 2, 50}, 0, 4) == 4);
  CHECK(x.empty());
}

TEST_CASE(
    "connector doubtful: each of several loads in a step counts separately, and the last one counts for shared blocks",
    "[connector]") {
  doubtful_blocks x;
  const blocks other{5, 6};
  const blocks upon{1, 2, 9};
  x.load_begins(std::span(loading).subspan(1));
  x.load_begins(other);
  x.load_begins(std::span(upon).subspan(2));
  x.load_ended(other, 0, {});
  CHECK_FALSE(x.contains(5));
  x.load_ended(upon, 2, {});
  CHECK(x.contains(9)); // it was loaded, behind blocks that are in doubt
  x.load_ended(loading, 1, 1);
  CHECK_FALSE(x.contains(6));
  CHECK(x.contains(2));
  CHECK(x.contains(9));
  // The next step's loads have nothing to do with these.
  x.load_begins(other);
  x.load_ended(other, 0, {});
  CHECK(x.contains(2));
  CHECK_FALSE(x.contains(5));
}

} // namespace troupe::test::connector_doubtful_test
