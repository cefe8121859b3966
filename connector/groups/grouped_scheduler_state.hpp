#pragma once

#include "base/clock.hpp"
#include "connector/block_keys.hpp"
#include "connector/groups/grouped_request.hpp"
#include "connector/groups/page_group.hpp"
#include "connector/scheduler/event_log.hpp"
#include "connector/scheduler/load_pace.hpp"
#include "connector/scheduler/scheduler_rules.hpp"
#include "connector/scheduler/session_table.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::connector {

struct grouped_options : scheduler_limits {
  std::vector<page_group> groups;
  /// The source of keys. A key is one page, of the same tokens in every group.
  key_source keys = key_source::engine_hashes;
  std::uint32_t page_tokens = 0;
};

/// The rules of a connector's scheduler half for models with several groups of layers (windows, states). What differs
/// from one group:
///
/// - A hit is the longest prefix for which every group has what it needs (`longest_hit`), and only those pages stay
///   leased. Pages of other nodes are fetched once it is known what all groups have there (`grouped_request::lookup`).
/// - Blocks that are being stored are held (`take_block_holds`), as a request's tables let go of them at any time. So a
///   store outlives a preemption and the end of its request, and the engine need not wait for it.
/// - A load fails as a whole: the engine looks the request up again, from its start.
/// - Loads are between steps only.
class grouped_scheduler_state final : public scheduler_rules {
public:
  explicit grouped_scheduler_state(grouped_options options);

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
  block_holds take_block_holds() override { return std::exchange(holds_, {}); }

  void on_lookup(std::uint64_t lookup, result<lookup_result> answer, timestamp now) override;

  std::vector<scheduler_effect> take_outbox() override { return std::exchange(outbox_, {}); }
  bool outbox_empty() const noexcept override { return outbox_.empty(); }

  std::size_t tracked_requests() const noexcept override { return sessions_.size(); }
  std::uint64_t passed_over_tokens() const noexcept override { return passed_over_tokens_; }

  /// Transfers that not all workers have reported; for tests.
  std::size_t open_transfers() const noexcept { return transfers_.size(); }
  std::size_t leases_held() const noexcept;
  const grouped_request* find(std::string_view request) const { return sessions_.find(request); }

private:
  /// A search may be repeated once, when a fetch brought less than it should.
  static constexpr std::uint8_t searches_max = 2;

  /// A store or a load of one group that not all workers have reported.
  struct open_transfer {
    session_id session = 0;
    std::uint32_t group = 0;
    bool load = false;
    std::vector<std::uint32_t> pages;
    std::uint32_t reports_missing = 0;
    std::vector<std::uint8_t> done;
    /// Stores: the blocks that are held for it.
    std::vector<block_id> blocks;
  };
  struct open_lookup {
    session_id session = 0;
    std::uint32_t group = 0;
  };
  struct open_load {
    session_id session = 0;
    timestamp since;
    hit_sources tokens;
  };

  grouped_request* track(const engine_request& request);
  void ask(grouped_request& x, timestamp now);
  /// Begins the next step of a lookup whose answers are all there, if there is one.
  void go_on(grouped_request& x, timestamp now);
  void search_peers(grouped_request& x, timestamp now);
  void fetch_pages(grouped_request& x);
  /// Whether this number of lookups may be added to those in progress.
  bool may_add(std::size_t count) const noexcept;
  void submit(grouped_request& x, std::uint32_t group, lookup_task work);
  void note_marks(const grouped_request& x, const grouped_request::lookup_part& part, const lookup_result& answer);
  void take_answer(grouped_request& x, grouped_request::lookup_part& part, const result<lookup_result>& answer);
  /// The answer to a search at other nodes. False if it is to none.
  bool take_search(grouped_request& x, std::uint64_t lookup, const result<lookup_result>& answer);
  /// All parts are answered, or as many as were in time: the hit is decided, and other leases are released.
  void decide(grouped_request& x, std::uint32_t computed_tokens);
  void release_searches(grouped_request& x);
  /// And what other nodes hold for it.
  void release_leases(grouped_request& x);
  void preempt(grouped_request& x);
  void emit_loads(connector_metadata& out, timestamp now);
  void emit_stores(grouped_request& x, const scheduled_request& part, connector_metadata& out);
  void emit(const grouped_request& x, grouped_request::page_store& store, connector_metadata& out);
  /// The mark of a page after one more worker has reported it.
  static std::uint8_t joined(const open_transfer& of, std::uint8_t before, std::uint8_t said) noexcept;
  void finish_transfer(store_id id, const open_transfer& done);
  void finish_load(grouped_request& x, bool failed, timestamp now);
  void drop(grouped_request& x);

  grouped_options options_;
  std::uint64_t epoch_ = 0;
  load_pace pace_;
  std::uint64_t passed_over_tokens_ = 0;
  session_table<grouped_request> sessions_;
  /// Until they are answered, also where their request has ended or does not wait any more: what they lease is
  /// released.
  std::unordered_map<std::uint64_t, open_lookup> lookups_;
  std::unordered_map<store_id, open_transfer> transfers_;
  /// Sessions with a load to be sent to the workers, and with one in progress.
  std::vector<session_id> loads_;
  std::vector<open_load> loading_;
  std::vector<finish_op> finished_;
  event_log events_;
  std::vector<scheduler_effect> outbox_;
  block_holds holds_;
  store_id last_transfer_ = 0;
  std::uint64_t last_lookup_ = 0;
};

} // namespace troupe::connector
