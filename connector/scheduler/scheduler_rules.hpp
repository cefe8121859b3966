#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "connector/scheduler/event_log.hpp"
#include "connector/scheduler/load_pace.hpp"
#include "connector/types.hpp"
#include "messages/transfer_messages.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::connector {

/// Look up which keys of a group are complete, and lease them. Answered by `on_lookup`, once.
struct lookup_submit {
  std::uint64_t lookup = 0;
  lookup_task work;
  std::uint32_t group = 0;
};
/// Release the lease, which is not needed any more.
struct lookup_release {
  ticket lease;
  std::uint32_t group = 0;
};
/// Keep the lease on these keys only, which will be loaded.
struct lookup_retain {
  ticket lease;
  std::vector<key_digest> keys;
  std::uint32_t group = 0;
};
/// Release what other nodes hold for a search of which nothing will be fetched.
struct search_release {
  std::uint64_t search = 0;
  std::uint32_t group = 0;
};

using scheduler_effect = std::variant<lookup_submit, lookup_release, lookup_retain, search_release>;

inline void add(fetched_pages& to, const peers_share& more) noexcept {
  to.requests += more.requests;
  to.pages += more.keys;
  to.took += more.took;
}

/// The limits and choices that do not depend on the number of groups of layers.
struct scheduler_limits {
  /// The number of workers that report, and of those that save.
  std::uint32_t workers = 1;
  std::uint32_t writers = 1;
  /// The most keys in one lookup; a longer prefix is looked up in parts.
  std::uint32_t lookup_keys_max = 4096;
  /// The most lookups in progress, each of one group; further requests wait.
  std::uint32_t lookups_max = 256;
  /// The most requests of the engine at which a new request is looked up on arrival: a long queue would lease much of
  /// the cache long before it is used. Other requests are looked up when the engine asks.
  std::size_t early_lookups_max = 512;
  /// How long found pages stay leased; looked up again when that has nearly expired.
  duration lease = std::chrono::seconds(30);
  /// A request is computed when this number of its lookups in a row were answered so late that their leases had nearly
  /// expired. Otherwise it could wait forever.
  std::uint32_t lookups_missed_max = 3;
  /// The time without an answer after which a lookup counts as a miss.
  duration lookup_patience = std::chrono::seconds(5);
  /// The most attempts to save a page while its request lives.
  std::uint32_t store_attempts_max = 3;
  /// Pages in one store op.
  std::uint32_t store_pages_max = 4096;
  event_detail events = event_detail::changes;
  /// Whether pages with tokens that the model has generated are saved.
  bool save_generated = true;
  /// Hits of fewer tokens are not worth a load.
  std::uint32_t min_load_tokens = 0;
  /// The part of a hit on disk that is worth a load.
  load_pace_options pace{};
};

/// What the rules of a scheduler half have in common, for models with one group of layers (`scheduler_state`) and with
/// several (`grouped_scheduler_state`). `scheduler_half` describes the hooks; here they have the time as an argument.
///
/// Plain state: after each call the owner carries out the effects in the outbox.
class scheduler_rules {
public:
  scheduler_rules() = default;
  scheduler_rules(const scheduler_rules&) = delete;
  scheduler_rules& operator=(const scheduler_rules&) = delete;
  virtual ~scheduler_rules() = default;

  virtual void on_new_request(const engine_request& request, timestamp now) = 0;
  virtual matched_tokens get_num_new_matched_tokens(const engine_request& request, std::uint32_t computed_tokens,
                                                    timestamp now) = 0;
  virtual void update_state_after_alloc(std::string_view request, const block_tables& blocks,
                                        std::uint32_t external_tokens) = 0;
  virtual hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const = 0;
  virtual fetched_pages get_fetched_pages(std::string_view request) const = 0;
  virtual connector_metadata build_connector_meta(const scheduler_output& step, timestamp now) = 0;
  virtual bool request_finished(std::string_view request) = 0;
  virtual void update_connector_output(const worker_output& output, timestamp now) = 0;
  virtual std::vector<cache_event> take_events() = 0;
  virtual bool reset_cache() = 0;
  virtual block_holds take_block_holds() { return {}; }

  /// The answer to a `lookup_submit`.
  virtual void on_lookup(std::uint64_t lookup, result<lookup_result> answer, timestamp now) = 0;

  virtual std::vector<scheduler_effect> take_outbox() = 0;
  virtual bool outbox_empty() const noexcept = 0;

  /// Requests that the engine has, or whose last transfers are not reported yet.
  virtual std::size_t tracked_requests() const noexcept = 0;
  /// Tokens since the start that lookups have found, and that engines compute because loading them takes longer.
  virtual std::uint64_t passed_over_tokens() const noexcept = 0;
};

} // namespace troupe::connector
