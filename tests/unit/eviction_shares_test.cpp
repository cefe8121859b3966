#include "actors/node/allocator/eviction_shares.hpp"
#include "tests/catch.hpp"

#include <numeric>
#include <random>

namespace eviction_shares_test {

using namespace troupe;

namespace {

using shares_t = std::vector<std::uint32_t>;

/// A shard's answer: how many slots it gave, how many that makes, and the keys that it has left.
evict_reply gave(std::uint32_t shard, std::uint32_t slots, std::uint64_t released, std::uint64_t keys) {
  return {slots, true, {shard, released, keys}};
}

} // namespace

TEST_CASE("eviction shares: shards are asked for no more than is wanted, and those with most pages first",
          "[allocator]") {
  eviction_shares shares(3);
  CHECK(shares.divide(7) == shares_t{3, 2, 2}); // nothing is known of them yet
  shares.answered(0, gave(0, 1, 1, 100));
  shares.answered(1, gave(1, 1, 1, 104));
  shares.answered(2, gave(2, 1, 1, 90));
  CHECK(shares.divide(3) == shares_t{0, 3, 0});
  CHECK(shares.divide(6) == shares_t{1, 5, 0});
  CHECK(shares.divide(26) == shares_t{11, 15, 0});
  CHECK_FALSE(shares.forced());
  CHECK(shares.hopeful());
}

TEST_CASE("eviction shares: shards with nothing due are skipped until none has anything, and then eviction is forced",
          "[allocator]") {
  eviction_shares shares(2);
  shares.answered(0, gave(0, 1, 1, 50));
  shares.answered(1, gave(1, 1, 1, 10));
  CHECK(shares.divide(4) == shares_t{4, 0});
  shares.answered(0, gave(0, 0, 1, 50));
  CHECK(shares.divide(4) == shares_t{0, 4});
  SECTION("a release of one shard may make pages of another one due") {
    shares.answered(1, gave(1, 1, 2, 9));
    CHECK(shares.divide(3) == shares_t{3, 0});
    CHECK_FALSE(shares.forced());
  }
  SECTION("no shard has anything due") {
    shares.answered(1, gave(1, 0, 1, 10));
    CHECK(shares.hopeful());
    CHECK(shares.divide(4) == shares_t{4, 0});
    CHECK(shares.forced());
    shares.failed(0);
    CHECK(shares.hopeful());
    CHECK(shares.divide(4) == shares_t{0, 4});
    CHECK(shares.forced());
    shares.answered(1, gave(1, 0, 1, 10));
    CHECK_FALSE(shares.hopeful());
    // A later request starts over with all shards.
    CHECK(shares.divide(4) == shares_t{4, 0});
    CHECK_FALSE(shares.forced());
  }
}

TEST_CASE("eviction shares: releases for other ranks are recorded and make a shard eligible", "[allocator]") {
  eviction_shares shares(2);
  CHECK(shares.seen(0) == 0);
  shares.released({1, 7, 40});
  CHECK(shares.seen(1) == 7);
  CHECK(shares.divide(3) == shares_t{0, 3});
  SECTION("older progress and progress of unknown shards change nothing") {
    shares.released({1, 6, 1000});
    shares.released({1, 7, 1000});
    shares.released({0, 0, 1000});
    shares.released({2, 100, 1000});
    shares.released({});
    CHECK(shares.seen(0) == 0);
    CHECK(shares.seen(1) == 7);
    CHECK(shares.divide(3) == shares_t{0, 3});
  }
  SECTION("an answer contains progress whose message was lost") {
    shares.answered(0, gave(0, 5, 12, 50));
    CHECK(shares.seen(0) == 12);
    CHECK(shares.divide(4) == shares_t{4, 0});
  }
  SECTION("shards that had nothing to release are asked again") {
    shares.answered(0, gave(0, 0, 0, 50));
    shares.answered(1, gave(1, 0, 7, 40));
    CHECK(shares.divide(2) == shares_t{0, 2});
    CHECK(shares.forced());
    shares.released({0, 1, 49});
    CHECK(shares.divide(2) == shares_t{2, 0});
    CHECK_FALSE(shares.forced());
  }
}

TEST_CASE("eviction shares: ranks that received the same progress ask the same shards", "[allocator]") {
  eviction_shares one(3);
  eviction_shares other(3);
  for (const release_progress& x : {release_progress{0, 4, 90}, {2, 9, 80}, {1, 3, 85}, {0, 5, 70}}) {
    one.released(x);
    other.released(x);
    // Requests since then are answered together with the slots, or not at all.
    one.answered(x.shard, gave(x.shard, 1, x.released, x.keys + 50));
  }
  const auto few = one.divide(8);
  const auto many = other.divide(20);
  CHECK(few == other.divide(8));
  for (std::size_t s = 0; s < 3; ++s)
    CHECK(few[s] <= many[s]);
}

TEST_CASE("eviction shares: shares add up to the request and balance the shards", "[allocator]") {
  std::mt19937 random(GENERATE(1U, 2U, 3U));
  for (int round = 0; round < 200; ++round) {
    const auto n = 1 + random() % 9;
    eviction_shares shares(n);
    std::vector<std::uint64_t> pages(n);
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      all += pages[i] = random() % 1000;
      shares.answered(i, gave(static_cast<std::uint32_t>(i), 1, 1, pages[i]));
    }
    const auto wanted = static_cast<std::uint32_t>(random() % (all + 1));
    const auto divided = shares.divide(wanted);
    REQUIRE(std::accumulate(divided.begin(), divided.end(), 0U) == wanted);
    // The shards that were asked keep equally many pages, and no fewer than those that were not.
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t k = 0; k < n; ++k) {
        REQUIRE(divided[i] <= pages[i]);
        if (divided[i] > 0)
          REQUIRE(pages[i] - divided[i] + 1 >= pages[k] - divided[k]);
      }
  }
}

} // namespace eviction_shares_test
