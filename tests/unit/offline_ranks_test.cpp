#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/eviction/reuse_policy.hpp"
#include "config/node_config.hpp"
#include "offline/played_cache.hpp"
#include "offline/what_if.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <vector>

namespace offline_ranks_test {

using namespace troupe;
using namespace troupe::offline;

namespace {

struct outcome {
  std::uint64_t hits = 0;
  std::uint64_t evicted = 0;
  /// The most that any rank had free after a request, once the first one had been full.
  std::uint64_t most_free = 0;
};

outcome play(const numbered_trace& what, const played_cache::options& how) {
  played_cache cache(how);
  outcome out;
  bool full = false;
  for (const auto& request : what.requests) {
    out.hits += cache.play(what.keys_of(request));
    full = full || cache.evicted_keys() > 0;
    for (rank_number rank = 0; full && rank < how.ranks; ++rank)
      out.most_free = std::max(out.most_free, cache.free_slots(rank));
  }
  out.evicted = cache.evicted_keys();
  return out;
}

} // namespace

TEST_CASE("offline ranks: a cache of several ranks fills like one of a single rank", "[offline]") {
  const auto what = number_trace(replay::open_trace("mixed:11,300,20,3,5,5", 512, {}).value());
  const config::storage_config defaults;
  played_cache::options how;
  how.capacity = 819;
  how.policy = GENERATE(as<eviction_factory>{}, make_lru_policy, make_reuse_policy);
  how.shards = GENERATE(1U, 4U);
  SECTION("evicted ahead") {
    how.low_watermark = defaults.low_watermark;
    how.high_watermark = defaults.high_watermark;
  }
  SECTION("evicted when needed") {}
  const auto one = play(what, how);
  REQUIRE(one.hits > 0);
  REQUIRE(one.evicted > 0);
  for (const std::uint32_t ranks : {2U, 3U, 8U}) {
    how.ranks = ranks;
    const auto several = play(what, how);
    INFO(how.shards << " shards, " << ranks << " ranks");
    // No slot more is empty than with one rank.
    CHECK(several.most_free == one.most_free);
    // Which of two equally good keys goes first may differ, and one trace is not enough to see more than that.
    CHECK(std::max(several.hits, one.hits) - std::min(several.hits, one.hits) <= what.blocks / 40);
  }
}

TEST_CASE("offline ranks: a cache of several ranks finds what one of a single rank does, within half a point",
          "[offline]") {
  constexpr int traces = 24;
  const config::storage_config defaults;
  played_cache::options how;
  how.capacity = 819;
  how.policy = make_reuse_policy;
  how.low_watermark = defaults.low_watermark;
  how.high_watermark = defaults.high_watermark;
  for (const std::uint32_t shards : {1U, 4U}) {
    how.shards = shards;
    double apart = 0;
    for (int seed = 1; seed <= traces; ++seed) {
      const auto what =
          number_trace(replay::open_trace("mixed:" + std::to_string(seed) + ",300,20,3,5,5", 512, {}).value());
      how.ranks = 1;
      const auto one = what.share(play(what, how).hits);
      how.ranks = 2;
      apart += (what.share(play(what, how).hits) - one) / traces;
    }
    INFO(shards << " shards");
    CHECK(apart < 0.005);
    CHECK(apart > -0.005);
  }
}

} // namespace offline_ranks_test
