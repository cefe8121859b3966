#pragma once

#include "connector/groups/grouped_scheduler_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <string>
#include <vector>

/// Support code for tests of a scheduler half with several groups of layers.

namespace troupe::test::groups {

using connector::block_hash;
using connector::block_id;
using connector::connector_metadata;
using connector::engine_request;
using connector::group_kind;
using connector::grouped_options;
using connector::grouped_scheduler_state;
using connector::lookup_release;
using connector::lookup_retain;
using connector::lookup_submit;
using connector::matched_tokens;
using connector::scheduled_request;
using connector::scheduler_output;
using connector::state_offer;
using connector::token_id;
using connector::worker_output;
using marks = std::vector<std::uint8_t>;
using table_list = std::vector<std::vector<block_id>>;

inline constexpr auto none = null_block;

/// Full attention in table 1, a window of 5 tokens in table 0, states in table 2; pages of 4 tokens, blocks of 2.
inline grouped_options three_groups() {
  grouped_options out;
  out.page_tokens = 4;
  out.groups = {{group_kind::full, 0, 0, 2, {1}, namespace_id{1, 1}},
                {group_kind::window, 5, 0, 2, {0}, namespace_id{1, 2}},
                {group_kind::state, 0, 0, 4, {2}, namespace_id{1, 3}}};
  return out;
}

/// Full attention and a window of 5 tokens.
inline grouped_options two_groups() {
  auto out = three_groups();
  out.groups.pop_back();
  return out;
}

/// A scheduler half, with the test in the place of the cache and the engine.
class harness {
public:
  explicit harness(const grouped_options& options) : state(options) {}

  matched_tokens ask(const std::string& id, std::uint32_t tokens, std::uint32_t computed = 0) {
    const auto out = state.get_num_new_matched_tokens(said(id, tokens), computed, now);
    collect();
    return out;
  }

  /// Answers the oldest lookup of a group, a search at peers if `search` is set; without marks, it has failed.
  void answer(std::uint32_t group, const marks& found, duration lease_for = {}, std::uint64_t search = 0) {
    const auto i = std::find_if(lookups.begin(), lookups.end(), [&](const auto& x) { return x.group == group; });
    REQUIRE(i != lookups.end());
    const auto lookup = i->lookup;
    lookups.erase(i);
    lookup_result out;
    out.matched = static_cast<std::uint32_t>(std::count(found.begin(), found.end(), 1));
    out.found.items = found;
    out.lease_for = lease_for;
    out.has_peers = has_peers;
    out.search = search;
    if (search != 0)
      out.matched = 0;
    else if (out.matched > 0)
      out.lease = {7, ++leases};
    state.on_lookup(lookup, found.empty() ? result<lookup_result>(fail(errc::timeout, "late")) : out, now);
    collect();
  }

  void allocate(const std::string& id, const table_list& tables, std::uint32_t external) {
    const flat_tables x(tables);
    state.update_state_after_alloc(id, {x.blocks, x.ends}, external);
    collect();
  }

  bool finish(const std::string& id) {
    const auto out = state.request_finished(id);
    collect();
    return out;
  }

  connector_metadata run(const std::string& id, const table_list& tables, std::uint32_t computed, std::uint32_t count,
                         std::uint32_t tokens, bool fresh = true, const std::vector<state_offer>& offers = {}) {
    const flat_tables x(tables);
    const auto request = said(id, tokens);
    scheduled_request part;
    part.id = id;
    part.computed_tokens = computed;
    part.scheduled_tokens = count;
    part.blocks = {x.blocks, x.ends};
    part.tokens = request.tokens;
    part.hashes = request.hashes;
    part.states = offers;
    scheduler_output step;
    (fresh ? step.new_requests : step.cached_requests) = {&part, 1};
    return build(step);
  }

  connector_metadata build(const scheduler_output& step = {}) {
    auto out = state.build_connector_meta(step, now);
    collect();
    return out;
  }

  void report(const worker_output& output) {
    state.update_connector_output(output, now);
    collect();
  }

  /// A request of 13 tokens whose hit of 12 is being loaded, in groups of three.
  connector_metadata load_twelve(const std::string& id) {
    ask(id, 13);
    answer(0, {1, 1, 1});
    answer(1, {0, 0, 1});
    answer(2, {0, 0, 1});
    REQUIRE(ask(id, 13) == matched_tokens{12, true});
    allocate(id, {{none, none, none, none, 1, 2}, {3, 4, 5, 6, 7, 8}, {none, none, 9}}, 12);
    return build();
  }

  grouped_scheduler_state state;
  timestamp now = timestamp{} + std::chrono::hours(1);
  std::vector<lookup_submit> lookups;
  std::vector<lookup_release> releases;
  std::vector<lookup_retain> retained;
  std::vector<connector::search_release> ended_searches;
  std::uint64_t leases = 0;
  bool has_peers = false;

private:
  struct flat_tables {
    explicit flat_tables(const table_list& tables) {
      for (const auto& table : tables) {
        blocks.insert(blocks.end(), table.begin(), table.end());
        ends.push_back(static_cast<std::uint32_t>(blocks.size()));
      }
    }
    std::vector<block_id> blocks;
    std::vector<std::uint32_t> ends;
  };

  engine_request said(const std::string& id, std::uint32_t tokens) {
    tokens_.resize(64);
    hashes_.clear();
    for (std::uint32_t i = 0; i < tokens / 4; ++i)
      hashes_.emplace_back()[0] = static_cast<std::byte>(i + 1);
    engine_request out;
    out.id = id;
    out.tokens = {0, std::span(tokens_).first(tokens)};
    out.hashes = {0, hashes_};
    return out;
  }

  void collect() {
    for (auto& effect : state.take_outbox())
      std::visit([this](auto& x) { keep(x); }, effect);
  }
  void keep(lookup_submit& x) { lookups.push_back(std::move(x)); }
  void keep(lookup_release& x) { releases.push_back(x); }
  void keep(lookup_retain& x) { retained.push_back(std::move(x)); }
  void keep(connector::search_release& x) { ended_searches.push_back(x); }

  std::vector<token_id> tokens_;
  std::vector<block_hash> hashes_;
};

} // namespace troupe::test::groups
