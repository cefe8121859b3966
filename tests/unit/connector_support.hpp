#pragma once

#include "connector/scheduler/scheduler_state.hpp"
#include "tests/catch.hpp"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace troupe::test {

using connector::block_id;
using connector::cache_event;
using connector::connector_metadata;
using connector::engine_request;
using connector::finished_requests;
using connector::key_source;
using connector::load_op;
using connector::lookup_release;
using connector::lookup_submit;
using connector::matched_tokens;
using connector::multimodal_item;
using connector::scheduled_request;
using connector::scheduler_options;
using connector::scheduler_output;
using connector::scheduler_state;
using connector::session_id;
using connector::store_id;
using connector::store_op;
using connector::store_outcome;
using connector::token_id;
using connector::token_range;
using connector::worker_output;

inline constexpr timestamp start_time = timestamp{} + std::chrono::hours(1);

/// Tokens first, first + 1, …
inline std::vector<token_id> tokens_from(token_id first, std::uint32_t count) {
  std::vector<token_id> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

inline std::vector<block_id> blocks_from(block_id first, std::uint32_t count) {
  std::vector<block_id> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// The options of LMCache's examples: blocks of 16 tokens, pages of 16 blocks.
inline scheduler_options lmcache_options() {
  scheduler_options out;
  out.ns = namespace_id{1, 2};
  out.keys = {key_source::rolling_chunk_hash, 16, 16};
  return out;
}

/// The options of HF3FS's connector: one page per block.
inline scheduler_options hf3fs_options() {
  auto out = lmcache_options();
  out.keys = {key_source::md5_chain, 16, 1};
  return out;
}

/// A scheduler half, with a person in the place of cache and engine.
class scheduler_harness {
public:
  explicit scheduler_harness(const scheduler_options& options) : state(options) {}

  /// All tokens each time, as an engine may.
  matched_tokens ask(std::string_view id, const std::vector<token_id>& tokens, std::uint32_t computed = 0) {
    const auto out = state.get_num_new_matched_tokens({.id = id, .tokens = {0, tokens}}, computed, now);
    collect();
    return out;
  }

  void arrive(std::string_view id, const std::vector<token_id>& tokens) {
    state.on_new_request({.id = id, .tokens = {0, tokens}}, now);
    collect();
  }

  /// Answers the oldest open lookup with the number of pages that were found, those of them that are on disk only, and
  /// the lease time, by default the requested one.
  void answer(std::uint32_t matched, std::vector<std::uint8_t> on_disk = {}, duration lease_for = {}) {
    REQUIRE_FALSE(lookups.empty());
    const auto lookup = lookups.front();
    lookups.erase(lookups.begin());
    lookup_result found{matched, {}, std::move(on_disk), lease_for};
    if (matched > 0)
      found.lease = ticket{7, ++leases_given};
    state.on_lookup(lookup.lookup, found, now);
    collect();
  }

  /// The answer to a lookup that no request waits for any more.
  void late_answer(std::uint64_t lookup, std::uint32_t matched, const ticket& lease) {
    state.on_lookup(lookup, lookup_result{matched, lease}, now);
    collect();
  }

  void refuse(errc why) {
    REQUIRE_FALSE(lookups.empty());
    const auto lookup = lookups.front();
    lookups.erase(lookups.begin());
    state.on_lookup(lookup.lookup, fail(why, "as the test wants it"), now);
    collect();
  }

  void allocate(std::string_view id, const std::vector<block_id>& blocks, std::uint32_t external) {
    state.update_state_after_alloc(id, blocks, external);
    collect();
  }

  connector_metadata build(const scheduler_output& step = {}) {
    auto out = state.build_connector_meta(step, now);
    collect();
    return out;
  }

  /// A step in which one request runs that did not run before.
  connector_metadata run_new(std::string_view id, const std::vector<block_id>& blocks, std::uint32_t computed,
                             std::uint32_t scheduled) {
    const scheduled_request part{
        .id = id, .computed_tokens = computed, .scheduled_tokens = scheduled, .blocks = blocks};
    return build({.new_requests = {&part, 1}});
  }

  connector_metadata run_on(std::string_view id, const std::vector<block_id>& added, std::uint32_t computed,
                            std::uint32_t scheduled, token_range tokens = {}) {
    const scheduled_request part{
        .id = id, .computed_tokens = computed, .scheduled_tokens = scheduled, .blocks = added, .tokens = tokens};
    return build({.cached_requests = {&part, 1}});
  }

  connector_metadata resume(std::string_view id, const std::vector<block_id>& all, std::uint32_t computed,
                            std::uint32_t scheduled) {
    const scheduled_request part{
        .id = id, .computed_tokens = computed, .scheduled_tokens = scheduled, .blocks = all, .resumed = true};
    return build({.cached_requests = {&part, 1}});
  }

  connector_metadata preempt(std::string_view id) { return build({.preempted = {&id, 1}}); }

  bool finish(std::string_view id) {
    const auto out = state.request_finished(id);
    collect();
    return out;
  }

  void report(const worker_output& output) {
    state.update_connector_output(output, now);
    collect();
  }

  /// Every page of these stores has been written.
  void all_stored(const std::vector<store_op>& stores) {
    worker_output out;
    for (const auto& x : stores)
      out.stores.push_back({x.id, std::vector<std::uint8_t>(x.keys.size(), 1)});
    report(out);
  }

  /// Runs a request from its lookup, which finds nothing, until it is about to run.
  void admit(std::string_view id, const std::vector<token_id>& tokens, const std::vector<block_id>& blocks) {
    ask(id, tokens);
    answer(0);
    CHECK(ask(id, tokens) == matched_tokens{0, false});
    allocate(id, blocks, 0);
  }

  /// Runs a request from its lookup until it waits for its load, and returns the load.
  load_op begin_load(std::string_view id, const std::vector<token_id>& tokens, std::uint32_t computed,
                     std::uint32_t matched, const std::vector<block_id>& blocks) {
    ask(id, tokens, computed);
    answer(matched);
    const auto found = ask(id, tokens, computed);
    allocate(id, blocks, found.tokens.value());
    auto loads = build().loads;
    REQUIRE(loads.size() == 1);
    return loads.front();
  }

  scheduler_state state;
  timestamp now = start_time;
  std::vector<lookup_submit> lookups;
  std::vector<ticket> released;
  std::uint64_t leases_given = 0;
  std::uint64_t lookups_sent = 0;

private:
  void collect() {
    for (auto& x : state.take_outbox()) {
      if (auto* sent = std::get_if<lookup_submit>(&x)) {
        ++lookups_sent;
        lookups.push_back(std::move(*sent));
      } else {
        released.push_back(std::get<lookup_release>(x).lease);
      }
    }
  }
};

} // namespace troupe::test
