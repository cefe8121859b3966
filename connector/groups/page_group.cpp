#include "connector/groups/page_group.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace troupe::connector {

namespace {

result<void> check(const page_group& group, std::size_t number, std::uint32_t page_tokens,
                   std::set<std::pair<std::uint32_t, std::uint32_t>>& seen) {
  const auto fault = [&](const std::string& what) {
    return fail(errc::invalid_argument, "group " + std::to_string(number) + ": " + what);
  };
  if (group.block_tokens == 0 || page_tokens % group.block_tokens != 0)
    return fault("a page of " + std::to_string(page_tokens) + " tokens is not a number of its blocks of " +
                 std::to_string(group.block_tokens));
  if (group.kind == group_kind::state && group.block_tokens != page_tokens)
    return fault("a state must have blocks of as many tokens as a page, " + std::to_string(page_tokens));
  const bool needs_tokens = group.kind == group_kind::window || group.kind == group_kind::chunk;
  if (needs_tokens && group.tokens == 0)
    return fault("a window or a chunk needs its number of tokens");
  if (group.tables.empty())
    return fault("it has no block table");
  for (const auto table : group.tables)
    if (!seen.emplace(group.stage, table).second)
      return fault("block table " + std::to_string(table) + " is in two groups");
  return {};
}

} // namespace

result<void> validate(std::span<const page_group> groups, std::uint32_t page_tokens) {
  if (groups.empty())
    return fail(errc::invalid_argument, "there are no groups");
  if (page_tokens == 0)
    return fail(errc::invalid_argument, "a page must have tokens");
  std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (auto sound = check(groups[i], i, page_tokens, seen); !sound)
      return sound;
    if ((groups[i].stage == 0) != (groups.front().stage == 0))
      return fail(errc::invalid_argument, "some groups are of a pipeline stage and others of all stages: give all of "
                                          "them the stage that has their layers, or none");
  }
  return {};
}

bool are_of_stages(std::span<const page_group> groups) noexcept {
  return !groups.empty() && groups.front().stage != 0;
}

parallel_layout layout_of_group(std::span<const page_group> groups, const parallel_layout& layout) noexcept {
  return are_of_stages(groups) ? one_stage(layout) : layout;
}

std::vector<std::uint32_t> groups_of_worker(std::span<const page_group> groups, const parallel_layout& layout,
                                            std::uint32_t worker) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t g = 0; g < groups.size(); ++g)
    if (groups[g].stage == 0 || groups[g].stage == stage_of(layout, worker) + 1)
      out.push_back(g);
  return out;
}

std::uint32_t table_count(std::span<const page_group> groups) noexcept {
  std::uint32_t out = 0;
  for (const auto& group : groups)
    for (const auto table : group.tables)
      out = std::max(out, table + 1);
  return out;
}

std::uint32_t blocks_per_page(const page_group& group, std::uint32_t page_tokens) noexcept {
  return static_cast<std::uint32_t>(group.tables.size()) * (page_tokens / group.block_tokens);
}

std::uint32_t first_token_needed(const page_group& group, std::uint32_t length, std::uint32_t page_tokens) noexcept {
  switch (group.kind) {
  case group_kind::full:
    return 0;
  case group_kind::window: {
    // The next token sees the last `tokens` tokens, itself included.
    const auto before = std::uint64_t{group.tokens} - 1 + group.extra_tokens;
    return length > before ? static_cast<std::uint32_t>(length - before) : 0;
  }
  case group_kind::chunk:
    return length / group.tokens * group.tokens;
  case group_kind::state:
    return length > page_tokens ? length - page_tokens : 0;
  }
  return 0;
}

std::uint32_t first_page_needed(const page_group& group, std::uint32_t pages, std::uint32_t page_tokens) noexcept {
  return std::min(pages, first_token_needed(group, pages * page_tokens, page_tokens) / page_tokens);
}

std::vector<std::uint32_t> pages_missing(const page_group& group, std::span<const std::uint8_t> found,
                                         std::uint32_t hit, std::uint32_t limit, std::uint32_t page_tokens) {
  std::vector<std::uint32_t> out;
  if (hit >= limit)
    return out;
  // What the shortest longer hit needs comes first; later ones need later pages.
  for (auto i = first_page_needed(group, hit + 1, page_tokens); i < std::min<std::size_t>(limit, found.size()); ++i)
    if (found[i] == 0)
      out.push_back(i);
  return out;
}

std::uint32_t longest_hit(std::span<const page_group> groups, std::span<const std::vector<std::uint8_t>> found,
                          std::uint32_t limit, std::uint32_t page_tokens) {
  auto pages = groups.empty() ? 0 : limit;
  for (const auto& marks : found)
    pages = std::min(pages, static_cast<std::uint32_t>(marks.size()));
  // For each group, `run[i]`: how many pages that were found end with page i.
  std::vector<std::vector<std::uint32_t>> runs(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto& run = runs[g];
    run.resize(pages);
    for (std::uint32_t i = 0; i < pages; ++i)
      run[i] = found[g][i] == 0 ? 0 : (i == 0 ? 1 : run[i - 1] + 1);
    if (groups[g].kind == group_kind::full)
      while (pages > 0 && run[pages - 1] < pages)
        --pages;
  }
  for (; pages > 0; --pages) {
    bool whole = true;
    bool needs_any = false;
    for (std::size_t g = 0; g < groups.size() && whole; ++g) {
      const auto needed = pages - first_page_needed(groups[g], pages, page_tokens);
      whole = runs[g][pages - 1] >= needed;
      needs_any = needs_any || needed > 0;
    }
    if (whole && needs_any)
      return pages;
  }
  return 0;
}

} // namespace troupe::connector
