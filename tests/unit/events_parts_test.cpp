#include "actors/client/transfer/description_parts.hpp"
#include "events/description_rules.hpp"
#include "tests/catch.hpp"
#include "tests/unit/events_support.hpp"

#include <algorithm>
#include <map>

namespace troupe::test {

using transfer::parts_by_shard;

TEST_CASE("events parts: descriptions are divided among shards without loss, in bounded parts", "[events]") {
  auto all = described(0, 100, 2, 3);
  all.lora = "adapter";
  all.groups = {{4, "sliding_window", 128}, {6}};
  for (std::uint32_t i = 0; i < 100; ++i) {
    all.extra.append(i % 3 == 0 ? "" : "\x92\x01\x02");
    all.extra_ends.items.push_back(static_cast<std::uint32_t>(all.extra.size()));
  }
  REQUIRE_FALSE(events::fault_of(all));
  const auto parts = parts_by_shard(all, 3, 7);
  std::size_t pages = 0;
  std::map<std::uint32_t, std::uint64_t> last;
  for (const auto& [shard, part] : parts) {
    CHECK_FALSE(events::fault_of(part));
    CHECK(part.keys.size() <= 7);
    CHECK(part.lora == all.lora);
    CHECK(part.groups == all.groups);
    pages += part.keys.size();
    for (std::size_t i = 0; i < part.keys.size(); ++i) {
      CHECK(shard_of(part.keys[i], 3) == shard);
      const auto at = static_cast<std::size_t>(std::ranges::find(all.keys, part.keys[i]) - all.keys.begin());
      REQUIRE(at < 100);
      CHECK(part.hashes[2 * i + 1] == all.hashes[2 * at + 1]);
      CHECK(part.parents[i] == all.parents[at]);
      CHECK(part.tokens[6 * i + 5] == all.tokens[6 * at + 5]);
      const auto begin = i == 0 ? 0 : part.extra_ends[i - 1];
      CHECK(part.extra_ends[i] - begin == (at % 3 == 0 ? 0U : 3U));
      // In the order of the request.
      CHECK((!last.contains(shard) || last[shard] < at));
      last[shard] = at;
    }
  }
  CHECK(pages == 100);
}

TEST_CASE("events parts: a part with many tokens has few pages", "[events]") {
  const auto parts = parts_by_shard(described(0, 10, 64, 1024), 1, 1000);
  CHECK(parts.size() == 10);
}

TEST_CASE("events parts: descriptions whose arrays do not fit are not divided", "[events]") {
  auto bad = described(0, 3);
  bad.tokens.items.pop_back();
  CHECK(parts_by_shard(bad, 2, 10).empty());
  bad = described(0, 3);
  bad.extra_ends.items = {1, 2, 3};
  CHECK(parts_by_shard(bad, 2, 10).empty());
  bad.extra = "abc";
  CHECK_FALSE(parts_by_shard(bad, 2, 10).empty());
}

} // namespace troupe::test
