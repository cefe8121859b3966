#pragma once

#include "base/error.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe::connector {

/// The connector inside an engine's scheduler: decides what to load and what to save. No GPU, no files.
///
/// No hook waits: what is to be asked is sent, the answer is pushed back, and hooks read what has arrived. All hooks
/// are called by one thread at a time.
class scheduler_half {
public:
  scheduler_half() = default;
  scheduler_half(const scheduler_half&) = delete;
  scheduler_half& operator=(const scheduler_half&) = delete;
  virtual ~scheduler_half() = default;

  /// The engine has a new request, which it will schedule later: begins the lookup, so that the answer may be there
  /// when it is asked for. Need not be called.
  virtual void on_new_request(const engine_request& request) = 0;

  /// How many tokens beyond `computed_tokens` (those in the engine's own prefix cache) can be loaded. The first call
  /// sends a lookup; until its answer is there, the number is absent. May be called any number of times; repeating it
  /// changes nothing. The last token of a request is never loaded, since the engine needs its output. Fewer tokens than
  /// `engine_options::min_load_tokens` count as none, and so does what `engine_options::disk` is against.
  virtual matched_tokens get_num_new_matched_tokens(const engine_request& request, std::uint32_t computed_tokens) = 0;

  /// The engine has allocated blocks: `blocks` are all of the request's, `external_tokens` is how many tokens it
  /// expects to be loaded: what `get_num_new_matched_tokens` said, or 0 if it could not take them. May be called a
  /// second time with 0 when a load has ended.
  virtual void update_state_after_alloc(std::string_view request, std::span<const block_id> blocks,
                                        std::uint32_t external_tokens) = 0;

  /// Of tokens that the last answer for this request promised, how many were in which tier; after
  /// `update_state_after_alloc`, before the request has ended.
  virtual hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const = 0;

  /// What the workers have to do in this step. Once per step. With asynchronous scheduling it comes before the output
  /// of the step before.
  virtual connector_metadata build_connector_meta(const scheduler_output& step) = 0;

  /// The request is done or aborted, at whatever point. True: the engine must keep its blocks until every worker has
  /// named it, as sent, or as received if it had not been yet.
  virtual bool request_finished(std::string_view request) = 0;

  /// What the workers reported, joined over all of them, before the engine acts on it.
  virtual void update_connector_output(const worker_output& output) = 0;

  /// Events since the last call.
  virtual std::vector<cache_event> take_events() = 0;

  /// How many workers have to name a request before it counts as finished.
  virtual std::uint32_t get_finished_count() const = 0;

  /// Nothing that was saved so far will be found by this engine again, as after a change of the model's weights.
  /// Requests that are under way neither load nor save any more.
  virtual bool reset_cache() = 0;

  /// Whether the half is attached to its node. Where the node may be absent at the start: unreachable until it is
  /// there, and for good any other error that keeps the half from ever being attached, such as identity_mismatch, with
  /// a sentence for the user.
  virtual result<void> attached() const = 0;

  /// Tokens that lookups have found and that the engine computes, counted since the half was made: they are on disk,
  /// and `engine_options::disk` is against loading them.
  virtual std::uint64_t passed_over_tokens() const = 0;

  /// Requests the connector knows of; 0 when the engine has none.
  virtual std::size_t tracked_requests() const = 0;
};

} // namespace troupe::connector
