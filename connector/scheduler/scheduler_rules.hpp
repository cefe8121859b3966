#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "connector/types.hpp"
#include "messages/transfer_messages.hpp"

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

using scheduler_effect = std::variant<lookup_submit, lookup_release, lookup_retain>;

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
