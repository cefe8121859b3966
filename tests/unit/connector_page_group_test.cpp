#include "connector/groups/page_group.hpp"
#include "tests/catch.hpp"
#include "tests/simulation/random.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace connector_page_group_test {

using namespace troupe;
using namespace troupe::connector;

using marks = std::vector<std::uint8_t>;

page_group group(group_kind kind, std::uint32_t tokens = 0, std::uint32_t block_tokens = 4,
                 std::vector<std::uint32_t> tables = {0}) {
  page_group out;
  out.kind = kind;
  out.tokens = tokens;
  out.block_tokens = block_tokens;
  out.tables = std::move(tables);
  return out;
}

std::uint32_t longest(const std::vector<page_group>& groups, const std::vector<marks>& found,
                      std::uint32_t limit = 99) {
  return longest_hit(groups, found, limit, 4);
}

TEST_CASE("connector page group: full attention needs every page of a prefix", "[connector][groups]") {
  const std::vector groups{group(group_kind::full)};
  CHECK(longest(groups, {{1, 1, 1, 0, 1}}) == 3);
  CHECK(longest(groups, {{0, 1, 1, 1, 1}}) == 0);
  CHECK(longest(groups, {{1, 1, 1, 1, 1}}) == 5);
  CHECK(longest(groups, {{1, 1, 1, 1, 1}}, 2) == 2);
}

TEST_CASE("connector page group: a window needs its last tokens, and nothing before", "[connector][groups]") {
  const std::vector groups{group(group_kind::window, 6)};
  // For 12 tokens, the last 5: from token 7, which is in page 1.
  CHECK(first_token_needed(groups[0], 12, 4) == 7);
  CHECK(first_page_needed(groups[0], 3, 4) == 1);
  CHECK(longest(groups, {{0, 1, 1}}) == 3);
  CHECK(longest(groups, {{0, 0, 1}}) == 0);
}

TEST_CASE("connector page group: a window that is one token shorter than whole pages needs one page less",
          "[connector][groups]") {
  CHECK(first_page_needed(group(group_kind::window, 5), 3, 4) == 2);
  CHECK(first_page_needed(group(group_kind::window, 6), 3, 4) == 1);
}

TEST_CASE("connector page group: tokens behind a window are needed as well", "[connector][groups]") {
  auto x = group(group_kind::window, 5);
  x.extra_tokens = 1;
  CHECK(first_page_needed(x, 3, 4) == 1);
}

TEST_CASE("connector page group: a shorter hit needs other pages of a window than a longer one",
          "[connector][groups]") {
  const std::vector groups{group(group_kind::full), group(group_kind::window, 5, 4, {1})};
  CHECK(longest(groups, {{1, 1, 1, 1}, {0, 1, 0, 0}}) == 2);
  CHECK(longest(groups, {{1, 1, 1, 1}, {0, 1, 0, 1}}) == 4);
  CHECK(longest(groups, {{1, 1, 1, 0}, {0, 1, 0, 1}}) == 2);
}

TEST_CASE("connector page group: a window of one token needs no page, and full attention decides",
          "[connector][groups]") {
  const std::vector groups{group(group_kind::full), group(group_kind::window, 1, 4, {1})};
  CHECK(longest(groups, {{1, 1, 0}, {0, 0, 0}}) == 2);
}

TEST_CASE("connector page group: a length that needs no page at all is no hit", "[connector][groups]") {
  CHECK(longest({group(group_kind::window, 1)}, {{0, 0, 0}}) == 0);
  // A chunk has just ended behind page 1, and one goes on behind page 2.
  const std::vector groups{group(group_kind::chunk, 8)};
  CHECK(longest(groups, {{0, 0}}) == 0);
  CHECK(longest(groups, {{0, 0, 1}}) == 3);
}

TEST_CASE("connector page group: a chunk needs its tokens since it began", "[connector][groups]") {
  const auto x = group(group_kind::chunk, 8);
  CHECK(first_page_needed(x, 2, 4) == 2);
  CHECK(first_page_needed(x, 3, 4) == 2);
  CHECK(first_page_needed(group(group_kind::chunk, 6), 2, 4) == 1);
  CHECK(longest({group(group_kind::full), group(group_kind::chunk, 8, 4, {1})}, {{1, 1, 1}, {0, 0, 0}}) == 2);
}

TEST_CASE("connector page group: a state is needed where the hit ends, and only there", "[connector][groups]") {
  const std::vector groups{group(group_kind::full), group(group_kind::state, 0, 4, {1})};
  CHECK(longest(groups, {{1, 1, 1, 1}, {0, 0, 1, 0}}) == 3);
  CHECK(longest(groups, {{1, 1, 0, 0}, {1, 0, 1, 0}}) == 1);
  CHECK(longest(groups, {{1, 1, 1, 1}, {0, 0, 0, 0}}) == 0);
}

TEST_CASE("connector page group: the shortest list of marks limits a hit", "[connector][groups]") {
  const std::vector groups{group(group_kind::full), group(group_kind::state, 0, 4, {1})};
  CHECK(longest(groups, {{1, 1, 1, 1}, {1, 1}}) == 2);
  CHECK(longest({}, {}) == 0);
}

TEST_CASE("connector page group: a hit is the longest for which each group has what it needs", "[connector][groups]") {
  simulation::random_source random(7);
  for (int round = 0; round < 4000; ++round) {
    const auto pages = random.number(0, 7);
    std::vector<page_group> groups;
    std::vector<marks> found;
    for (auto n = random.number(1, 4); n > 0; --n) {
      groups.push_back(group(static_cast<group_kind>(random.below(4)), random.number(1, 17)));
      auto& each = found.emplace_back(pages);
      for (auto& mark : each)
        mark = random.one_in(4) ? 0 : 1;
    }
    // Token by token, as the layers read them.
    const auto needs = [&](const page_group& x, std::uint32_t length, std::uint32_t token) {
      switch (x.kind) {
      case group_kind::full:
        return true;
      case group_kind::window:
        return token + x.tokens > length;
      case group_kind::chunk:
        return token / x.tokens == length / x.tokens;
      case group_kind::state:
        return token + 1 == length;
      }
      return false;
    };
    std::uint32_t best = 0;
    for (std::uint32_t hit = 1; hit <= pages; ++hit) {
      bool whole = true;
      bool any = false;
      for (std::size_t g = 0; g < groups.size(); ++g)
        for (std::uint32_t token = 0; token < hit * 4; ++token)
          if (needs(groups[g], hit * 4, token)) {
            any = true;
            whole = whole && found[g][token / 4] != 0;
          }
      if (whole && any)
        best = hit;
    }
    REQUIRE(longest(groups, found) == best);
  }
}

TEST_CASE("connector page group: groups that contradict each other are refused", "[connector][groups]") {
  const auto text = [](const std::vector<page_group>& groups) {
    const auto out = validate(groups, 8);
    return out ? std::string() : out.error().text;
  };
  CHECK(text({group(group_kind::full), group(group_kind::window, 5, 2, {1, 2})}).empty());
  CHECK(text({}).find("no groups") != std::string::npos);
  CHECK(text({group(group_kind::full, 0, 3)}).find("not a number of its blocks") != std::string::npos);
  CHECK(text({group(group_kind::state, 0, 4)}).find("as many tokens as a page") != std::string::npos);
  CHECK(text({group(group_kind::window)}).find("needs its number of tokens") != std::string::npos);
  CHECK(text({group(group_kind::full, 0, 4, {})}).find("no block table") != std::string::npos);
  CHECK(text({group(group_kind::full), group(group_kind::chunk, 4)}).find("in two groups") != std::string::npos);
}

TEST_CASE("connector page group: stages have groups with the same tables, and all groups are of stages or none is",
          "[connector][groups]") {
  const auto of_stage = [](std::uint32_t stage, page_group x) {
    x.stage = stage;
    return x;
  };
  std::vector groups{of_stage(1, group(group_kind::full)), of_stage(1, group(group_kind::window, 5, 4, {1})),
                     of_stage(2, group(group_kind::full))};
  CHECK(validate(groups, 8));
  CHECK(are_of_stages(groups));
  CHECK(table_count(groups) == 2);
  groups.push_back(of_stage(2, group(group_kind::chunk, 4)));
  CHECK(validate(groups, 8).error().text.find("in two groups") != std::string::npos);
  groups.back().stage = 0;
  CHECK(validate(groups, 8).error().text.find("give all of them the stage") != std::string::npos);
  CHECK_FALSE(are_of_stages({}));
}

TEST_CASE("connector page group: a worker has the groups of its stage, and is a rank of that stage alone",
          "[connector][groups]") {
  std::vector<page_group> groups(3);
  for (std::uint32_t g = 0; g < 3; ++g)
    groups[g].stage = g == 1 ? 1 : 2;
  const parallel_layout layout{2, 2, 1, false};
  CHECK(layout_of_group(groups, layout) == parallel_layout{2, 1, 1, false});
  using numbers = std::vector<std::uint32_t>;
  CHECK(groups_of_worker(groups, layout, 0) == numbers{1});
  CHECK(groups_of_worker(groups, layout, 1) == numbers{1});
  CHECK(groups_of_worker(groups, layout, 2) == numbers{0, 2});
  CHECK(groups_of_worker(groups, layout, 3) == numbers{0, 2});
  for (auto& x : groups)
    x.stage = 0;
  CHECK(layout_of_group(groups, layout) == layout);
  CHECK(groups_of_worker(groups, layout, 3) == numbers{0, 1, 2});
}

TEST_CASE("connector page group: a hit of stages is the longest that every stage allows", "[connector][groups]") {
  std::vector groups{group(group_kind::full), group(group_kind::state), group(group_kind::full),
                     group(group_kind::state)};
  groups[0].stage = groups[1].stage = 1;
  groups[2].stage = groups[3].stage = 2;
  CHECK(longest(groups, {{1, 1, 1}, {0, 0, 1}, {1, 1, 1}, {0, 0, 1}}) == 3);
  // The second stage has another end.
  CHECK(longest(groups, {{1, 1, 1}, {0, 0, 1}, {1, 1, 1}, {0, 1, 0}}) == 0);
  CHECK(longest(groups, {{1, 1, 1}, {0, 1, 1}, {1, 1, 0}, {0, 1, 1}}) == 2);
}

TEST_CASE("connector page group: a page has the blocks of all tables of its group", "[connector][groups]") {
  const std::vector groups{group(group_kind::full, 0, 2, {3, 0}), group(group_kind::state, 0, 8, {1})};
  CHECK(blocks_per_page(groups[0], 8) == 8);
  CHECK(blocks_per_page(groups[1], 8) == 1);
  CHECK(table_count(groups) == 4);
}

TEST_CASE("connector page group: pages that a longer hit may need are missing, and no others", "[connector][groups]") {
  const marks found{1, 0, 0, 1, 0, 0};
  using pages = std::vector<std::uint32_t>;
  CHECK(pages_missing(group(group_kind::full), found, 1, 6, 4) == pages{1, 2, 4, 5});
  CHECK(pages_missing(group(group_kind::full), found, 1, 4, 4) == pages{1, 2});
  // A hit of three pages needs the window's page 2, or with one token more page 1 as well.
  CHECK(pages_missing(group(group_kind::window, 5), found, 2, 6, 4) == pages{2, 4, 5});
  CHECK(pages_missing(group(group_kind::window, 6), found, 2, 6, 4) == pages{1, 2, 4, 5});
  CHECK(pages_missing(group(group_kind::state), found, 4, 6, 4) == pages{4, 5});
  CHECK(pages_missing(group(group_kind::full), found, 6, 6, 4).empty());
}

} // namespace connector_page_group_test
