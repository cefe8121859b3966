#include "tests/group_simulation/model.hpp"

#include "base/digest.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe::group_simulation {

namespace {

using simulation::random_source;

std::uint32_t divisor(random_source& random, std::uint32_t of) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 1; i <= of; ++i)
    if (of % i == 0)
      all.push_back(i);
  return random.pick(all);
}

page_group make_group(random_source& random, group_kind kind, std::uint32_t page_tokens) {
  page_group out;
  out.kind = kind;
  out.block_tokens = kind == group_kind::state ? page_tokens : divisor(random, page_tokens);
  if (kind == group_kind::window || kind == group_kind::chunk)
    out.tokens = random.one_in(3) ? random.number(1, page_tokens) : random.number(1, 4 * page_tokens);
  if (kind == group_kind::window && random.one_in(4))
    out.extra_tokens = random.number(1, page_tokens);
  return out;
}

/// Divides the layers of each group over pipeline stages, some of which have none of a table.
void divide(random_source& random, shape& out) {
  const auto whole = std::exchange(out.groups, {});
  for (std::uint32_t stage = 1; stage <= out.stages; ++stage)
    for (const auto& group : whole) {
      auto part = group;
      part.stage = stage;
      std::erase_if(part.tables, [&](std::uint32_t) { return out.stages > 1 && random.one_in(4); });
      if (!part.tables.empty())
        out.groups.push_back(std::move(part));
    }
  // Each table is that of some layers, and each stage has some.
  for (std::uint32_t t = 0; t < out.tables(); ++t)
    if (std::none_of(out.groups.begin(), out.groups.end(),
                     [&](const page_group& x) { return std::ranges::count(x.tables, t) > 0; })) {
      auto lone = whole[out.group_of_table[t]];
      const auto stage = static_cast<std::uint32_t>(1 + random.below(out.stages));
      const auto same = std::find_if(out.groups.begin(), out.groups.end(),
                                     [&](const page_group& x) { return x.stage == stage && x.ns == lone.ns; });
      if (same != out.groups.end()) {
        same->tables.push_back(t);
        continue;
      }
      lone.stage = stage;
      lone.tables = {t};
      out.groups.push_back(std::move(lone));
    }
  for (std::uint32_t stage = 1; stage <= out.stages; ++stage)
    if (std::none_of(out.groups.begin(), out.groups.end(), [&](const page_group& x) { return x.stage == stage; })) {
      out.groups.push_back(random.pick(whole));
      out.groups.back().stage = stage;
    }
  for (std::uint32_t g = 0; g < out.groups.size(); ++g)
    for (const auto table : out.groups[g].tables)
      out.group_of_table[table] = g;
}

} // namespace

bool shape::has_table(std::uint32_t worker, std::uint32_t table) const {
  return std::any_of(groups.begin(), groups.end(), [&](const page_group& x) {
    return x.stage == stage_of(worker) && std::ranges::count(x.tables, table) > 0;
  });
}

std::uint32_t shape::blocks_per_page(std::uint32_t group) const {
  const auto& x = groups[group];
  return static_cast<std::uint32_t>(x.tables.size()) * (page_tokens / x.block_tokens);
}

std::string shape::describe() const {
  std::string out = "pages of " + std::to_string(page_tokens) + " tokens, " + std::to_string(workers) + " workers" +
                    (replicated ? " with the same KV" : "") + ", " + std::to_string(blocks) + " blocks" +
                    (peers ? ", peers" : "") + (stages > 0 ? ", " + std::to_string(stages) + " stages" : "") +
                    (drafts > 0 ? ", " + std::to_string(drafts) + " drafts" : "");
  for (const auto& x : groups) {
    constexpr const char* names[] = {"full", "window", "chunk", "state"};
    out += std::string("; ") + names[static_cast<int>(x.kind)];
    if (x.tokens > 0)
      out += " " + std::to_string(x.tokens) + "+" + std::to_string(x.extra_tokens);
    out += " in blocks of " + std::to_string(x.block_tokens) + ", " + std::to_string(x.tables.size()) + " tables";
    if (x.stage > 0)
      out += " of stage " + std::to_string(x.stage);
  }
  return out;
}

shape make_shape(random_source& random) {
  shape out;
  out.page_tokens = random.pick(std::vector<std::uint32_t>{2, 4, 6, 8});
  const auto count = random.number(1, 4);
  const bool has_full = !random.one_in(5);
  for (std::uint32_t g = 0; g < count; ++g) {
    const auto kind = g == 0 && has_full ? group_kind::full : static_cast<group_kind>(random.below(4));
    out.groups.push_back(make_group(random, kind, out.page_tokens));
  }
  // vLLM numbers its tables as its layers come, so those of a group are anywhere.
  std::vector<std::uint32_t> owners;
  for (std::uint32_t g = 0; g < count; ++g)
    owners.insert(owners.end(), random.number(1, 2), g);
  for (auto i = owners.size(); i > 1; --i)
    std::swap(owners[i - 1], owners[random.below(i)]);
  out.group_of_table = owners;
  for (std::uint32_t t = 0; t < owners.size(); ++t)
    out.groups[owners[t]].tables.push_back(t);
  for (auto& group : out.groups)
    group.ns = namespace_id{1, static_cast<std::uint64_t>(&group - out.groups.data()) + 1};

  out.workers = random.number(1, 3);
  out.replicated = out.workers > 1 && random.one_in(4);
  if (random.one_in(3)) {
    out.stages = random.number(1, 3);
    out.workers *= out.stages;
    divide(random, out);
    for (auto& group : out.groups)
      group.ns = namespace_id{1, static_cast<std::uint64_t>(&group - out.groups.data()) + 1};
  }
  out.step_tokens = random.number(std::max(2U, out.page_tokens / 2), 5 * out.page_tokens);
  out.prompt_max = random.number(2, 9) * out.page_tokens;
  out.output_max = random.number(1, 2 * out.page_tokens);
  std::uint32_t one = 1;
  for (std::uint32_t t = 0; t < out.tables(); ++t)
    one += (out.prompt_max + out.output_max) / out.block_tokens(t) + 4;
  out.blocks = one + static_cast<std::uint32_t>(random.below(3 * one));
  out.prefix_caching = !random.one_in(3);
  out.newest_first = random.one_in(2);
  out.checkpoints = random.one_in(2);
  out.late_output = random.one_in(2);
  out.offers_left_out = random.one_in(3) ? 3 : 20;
  out.peers = !random.one_in(3);
  const bool states = std::any_of(out.groups.begin(), out.groups.end(),
                                  [](const page_group& x) { return x.kind == group_kind::state; });
  if (!states && random.one_in(3))
    out.drafts = random.number(1, 2 * out.page_tokens);
  return out;
}

std::uint32_t first_needed(const page_group& group, std::uint32_t length) {
  switch (group.kind) {
  case group_kind::full:
    return 0;
  case group_kind::window: {
    // The next token, at position `length`, attends to itself and `tokens` - 1 before it.
    const std::int64_t first = std::int64_t{length} - group.tokens + 1 - group.extra_tokens;
    return static_cast<std::uint32_t>(std::max<std::int64_t>(0, first));
  }
  case group_kind::chunk:
    return length - length % group.tokens;
  case group_kind::state:
    return length == 0 ? 0 : (length - 1) / group.block_tokens * group.block_tokens;
  }
  return 0;
}

std::uint32_t first_page(const shape& x, std::uint32_t group, std::uint32_t length) {
  return first_needed(x.groups[group], length) / x.page_tokens;
}

content kv(std::uint32_t table, std::uint32_t stage, std::uint32_t rank, content prefix) {
  return mix(mix(prefix, table + 1), 16 * stage + rank + 1);
}

} // namespace troupe::group_simulation
