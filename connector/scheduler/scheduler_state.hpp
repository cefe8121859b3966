#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "connector/block_keys.hpp"
#include "connector/scheduler/doubtful_blocks.hpp"
#include "connector/scheduler/event_log.hpp"
#include "connector/scheduler/load_pace.hpp"
#include "connector/scheduler/request_tracker.hpp"
#include "connector/scheduler/scheduler_rules.hpp"
#include "connector/scheduler/session_table.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::connector {

struct scheduler_options : scheduler_limits {
  namespace_id ns;
  /// The source of keys, and the tokens of one key.
  key_chain_options keys;
  /// The most leases that are held for the node to read pages that are computed because the disk is slow.
  std::size_t reads_ahead_max = 16;
  /// Whether loads belong to the step that runs the request.
  bool synchronous_loads = false;
};

/// The rules of a connector's scheduler half for models with one group of layers, for all requests: which are looked
/// up, loaded and saved, and when their blocks are free. Hooks read the answers of lookups that have arrived.
class scheduler_state final : public scheduler_rules {
public:
  explicit scheduler_state(const scheduler_options& options)
      : options_(options), pace_(options.pace), events_({.detail = options.events, .page_tokens = page_tokens()}) {}

  void on_new_request(const engine_request& request, timestamp now) override;
  matched_tokens get_num_new_matched_tokens(const engine_request& request, std::uint32_t computed_tokens,
                                            timestamp now) override;
  void update_state_after_alloc(std::string_view request, const block_tables& blocks,
                                std::uint32_t external_tokens) override;
  hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const override;
  fetched_pages get_fetched_pages(std::string_view request) const override;
  connector_metadata build_connector_meta(const scheduler_output& step, timestamp now) override;
  bool request_finished(std::string_view request) override;
  void update_connector_output(const worker_output& output, timestamp now) override;
  std::vector<cache_event> take_events() override { return events_.take(); }
  bool reset_cache() override;

  void on_lookup(std::uint64_t lookup, result<lookup_result> answer, timestamp now) override;

  std::vector<scheduler_effect> take_outbox() override { return std::exchange(outbox_, {}); }
  bool outbox_empty() const noexcept override { return outbox_.empty(); }

  std::size_t tracked_requests() const noexcept override { return sessions_.size(); }
  std::uint64_t passed_over_tokens() const noexcept override { return passed_over_tokens_; }
  const load_pace& pace() const noexcept { return pace_; }
  /// Leases that are to be used or released.
  std::size_t leases_held() const noexcept;
  /// Whether a synchronous load may have left a wrong content in the block.
  bool is_in_doubt(block_id block) const { return doubtful_.contains(block); }
  /// The state of a request, for tests; null for an unknown one.
  const request_tracker* find(std::string_view request) const { return sessions_.find(request); }

private:
  /// The times of a load in progress.
  struct load_times {
    timestamp since;
    hit_sources tokens;
    /// Tokens computed by the step that waits for it.
    std::uint32_t beside = 0;
  };
  struct open_load {
    session_id session = 0;
    load_times times;
  };
  /// A store op that not all writers have reported, or a synchronous load that not all workers have.
  struct open_store {
    session_id session = 0;
    /// The generation of the request when the op was sent to the workers.
    std::uint32_t generation = 0;
    std::uint32_t first_page = 0;
    std::uint32_t reports_missing = 0;
    std::vector<std::uint8_t> stored;
    bool load = false;
    load_times times{};
  };

  /// A lease under which the node reads from its disk.
  struct read_ahead {
    ticket lease;
    duration lasts{};
    /// Set at the next step.
    std::optional<timestamp> until;
  };

  struct open_lookup {
    std::uint64_t lookup = 0;
    timestamp since;
  };

  /// Returns the request, which is tracked from now on; null where it is excluded.
  request_tracker* track(const engine_request& request);
  /// Looks up the next keys that were not found yet, if there is room for one more lookup.
  void ask(request_tracker& x, timestamp now);
  /// Counts lookups that have timed out as misses.
  void expire_lookups(timestamp now);
  void release_leases(request_tracker& x);
  /// The load has ended, or there is none. The lease is kept while pages on disk are computed, so that the node can
  /// read them into memory for the next request.
  void release_or_read_ahead(request_tracker& x);
  void end_reads_ahead(timestamp now);
  void end_all_reads_ahead();
  /// Determines which blocks of the step's requests are not in doubt: `sure_tokens_`.
  void settle_doubts(const scheduler_output& step);
  void emit_stores(request_tracker& x, const scheduled_request& part, connector_metadata& out);
  /// The engine has taken the blocks of a running request.
  void preempt(request_tracker& x);
  void emit_loads(connector_metadata& out, std::uint32_t step_tokens, timestamp now);
  void finish_store(store_id id, const open_store& done, timestamp now);
  void finish_synchronous_load(request_tracker& x, const open_store& done, timestamp now);
  void finish_load(request_tracker& x, timestamp now);
  /// The load has ended: pages that it did not bring are not in the cache. Returns whether it has brought all.
  bool take_loaded(request_tracker& x);
  /// The engine was notified that it may free the blocks of a finished request.
  void let_go(const std::string& name, timestamp now);
  void learn(const load_times& load, bool whole, timestamp now);
  static event_log::source source_of(const request_tracker& x) { return {x.name(), x.keys()}; }
  std::uint32_t page_tokens() const noexcept { return options_.keys.block_tokens * options_.keys.blocks_per_page; }
  /// Removes a session that has nothing in progress and that the engine does not have any more.
  void drop_if_over(session_id session);

  scheduler_options options_;
  std::uint64_t epoch_ = 0;
  load_pace pace_;
  std::uint64_t passed_over_tokens_ = 0;
  session_table<request_tracker> sessions_;
  std::unordered_map<std::uint64_t, session_id> lookups_;
  /// In the order of sending; answered ones are skipped.
  std::deque<open_lookup> lookup_order_;
  std::vector<read_ahead> reads_ahead_;
  std::unordered_map<store_id, open_store> stores_;
  doubtful_blocks doubtful_;
  /// For the step that is being built, where anything is in doubt.
  std::unordered_map<session_id, std::uint32_t> sure_tokens_;
  /// Sessions with a load to be sent to the workers, and with one in progress.
  std::vector<session_id> loads_;
  std::vector<open_load> loading_;
  std::vector<finish_op> finished_;
  /// Sessions that were preempted since the last step, with stores that may still read their blocks.
  std::vector<session_id> preempted_;
  event_log events_;
  std::vector<scheduler_effect> outbox_;
  store_id last_store_ = 0;
  std::uint64_t last_lookup_ = 0;
};

} // namespace troupe::connector
