#include "actors/node/allocator/eviction_shares.hpp"
#include "tests/catch.hpp"

#include <numeric>
#include <random>

namespace eviction_shares_test {

using namespace troupe;

namespace {

using shares_t = std::vector<std::uint32_t>;

} // namespace

TEST_CASE("shards are asked for no more than is wanted, and those first that have most", "[allocator]") {
  eviction_shares shares(3);
  CHECK(shares.divide(7) == shares_t{3, 2, 2}); // nothing is known of them yet
  shares.answered(0, 1, 100);
  shares.answered(1, 1, 104);
  shares.answered(2, 1, 90);
  CHECK(shares.divide(3) == shares_t{0, 3, 0});
  CHECK(shares.divide(6) == shares_t{1, 5, 0});
  CHECK(shares.divide(26) == shares_t{11, 15, 0});
  CHECK_FALSE(shares.forced());
  CHECK(shares.hopeful());
}

TEST_CASE("shards with nothing due are left out, until nobody has, then they are forced", "[allocator]") {
  eviction_shares shares(2);
  shares.answered(0, 1, 50);
  shares.answered(1, 1, 10);
  CHECK(shares.divide(4) == shares_t{4, 0});
  shares.answered(0, 0, 50);
  CHECK(shares.divide(4) == shares_t{0, 4});
  SECTION("what one gives may be what another has waited for") {
    shares.answered(1, 1, 9);
    CHECK(shares.divide(3) == shares_t{3, 0});
    CHECK_FALSE(shares.forced());
  }
  SECTION("nothing is due anywhere") {
    shares.answered(1, 0, 10);
    CHECK(shares.hopeful());
    CHECK(shares.divide(4) == shares_t{4, 0});
    CHECK(shares.forced());
    shares.failed(0);
    CHECK(shares.hopeful());
    CHECK(shares.divide(4) == shares_t{0, 4});
    CHECK(shares.forced());
    shares.answered(1, 0, 10);
    CHECK_FALSE(shares.hopeful());
    // Asked again later, all begin anew.
    CHECK(shares.divide(4) == shares_t{4, 0});
    CHECK_FALSE(shares.forced());
  }
}

TEST_CASE("shares add up, and make shards even", "[allocator]") {
  std::mt19937 random(GENERATE(1U, 2U, 3U));
  for (int round = 0; round < 200; ++round) {
    const auto n = 1 + random() % 9;
    eviction_shares shares(n);
    std::vector<std::uint64_t> pages(n);
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      all += pages[i] = random() % 1000;
      shares.answered(i, 1, pages[i]);
    }
    const auto wanted = static_cast<std::uint32_t>(random() % (all + 1));
    const auto divided = shares.divide(wanted);
    REQUIRE(std::accumulate(divided.begin(), divided.end(), 0U) == wanted);
    // Who was asked has as many left as the others who were, and no fewer than who was not.
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < n; ++k) {
        REQUIRE(divided[i] <= pages[i]);
        if (divided[i] > 0)
          REQUIRE(pages[i] - divided[i] + 1 >= pages[k] - divided[k]);
      }
  }
}

} // namespace eviction_shares_test
