#pragma once

#include "base/error.hpp"
#include "connector/types.hpp"
#include "messages/event_messages.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::connector {

/// The connector inside an engine's scheduler: decides what to load and what to save. No GPU, no files.
///
/// No hook waits: requests are sent, answers are queued, and hooks read the queued answers. All hooks are called by one
/// thread at a time.
class scheduler_half {
public:
  scheduler_half() = default;
  scheduler_half(const scheduler_half&) = delete;
  scheduler_half& operator=(const scheduler_half&) = delete;
  virtual ~scheduler_half() = default;

  /// The engine has a new request, which it will schedule later: begins the lookup, so that the answer may have arrived
  /// when it is needed. The call is optional.
  virtual void on_new_request(const engine_request& request) = 0;

  /// How many tokens beyond `computed_tokens` (those in the engine's own prefix cache) can be loaded. The first call
  /// sends a lookup; until its answer arrives, the number is absent. May be called any number of times without further
  /// effect. The last token of a request is never loaded, since the engine needs its output. Fewer tokens than
  /// `engine_options::min_load_tokens` count as none, and so do those that `engine_options::disk` excludes.
  virtual matched_tokens get_num_new_matched_tokens(const engine_request& request, std::uint32_t computed_tokens) = 0;

  /// The engine has allocated blocks: `blocks` are all of the request's, `external_tokens` is the number of tokens to
  /// be loaded: the result of `get_num_new_matched_tokens`, or 0 if the engine could not use them. May be called again
  /// with 0 when a load has ended.
  virtual void update_state_after_alloc(std::string_view request, const block_tables& blocks,
                                        std::uint32_t external_tokens) = 0;

  /// The tiers of the tokens of the last result for this request; after `update_state_after_alloc`, before the request
  /// has ended.
  virtual hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const = 0;

  /// What the last lookup of this request had from other nodes; from its answer on, before the request has ended.
  virtual fetched_pages get_fetched_pages(std::string_view request) const = 0;

  /// The work of the workers in this step. Once per step. With asynchronous scheduling it comes before the output of
  /// the step before.
  virtual connector_metadata build_connector_meta(const scheduler_output& step) = 0;

  /// The request is done or aborted, in any state. True: the engine must keep its blocks until every worker has named
  /// it, as sent, or as received if it had not been received yet.
  virtual bool request_finished(std::string_view request) = 0;

  /// The reports of the workers, joined over all of them, before the engine acts on them.
  virtual void update_connector_output(const worker_output& output) = 0;

  /// Blocks that the engine has to keep, and need not keep any more, since the last call. With several groups of layers
  /// an engine gives blocks of running requests to others, so the connector holds those that are being copied. To be
  /// called after `build_connector_meta`, before the engine schedules anything, and after `update_connector_output`.
  /// Empty with one group.
  virtual block_holds take_block_holds() { return {}; }

  /// Events since the last call.
  virtual std::vector<cache_event> take_events() = 0;

  /// Whether the node publishes events, so that descriptions of pages are useful.
  virtual bool wants_descriptions() const { return false; }

  /// What the node's events say about pages of a group that were stored or found. A hint: ignored without a node that
  /// wants it, or if too many are in progress. Error: invalid_argument for a group that the engine does not have.
  virtual result<void> describe(std::size_t, page_descriptions) { return {}; }

  /// The number of workers that have to name a request before it counts as finished.
  virtual std::uint32_t get_finished_count() const = 0;

  /// Everything saved so far becomes invisible to this engine, as after a change of the model's weights. Requests in
  /// progress neither load nor save any more.
  virtual bool reset_cache() = 0;

  /// Whether the half is attached to its node. Where the node may be absent at the start: unreachable until it is
  /// attached, or a permanent error that prevents that, such as identity_mismatch, with a text for the user.
  virtual result<void> attached() const = 0;

  /// Tokens that lookups have found and that the engine computes, counted since the half was made: they are on disk,
  /// and `engine_options::disk` excludes them.
  virtual std::uint64_t passed_over_tokens() const = 0;

  /// The number of requests with state in the connector; 0 when the engine has none.
  virtual std::size_t tracked_requests() const = 0;
};

} // namespace troupe::connector
