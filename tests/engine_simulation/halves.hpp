#pragma once

#include "connector/scheduler/scheduler_state.hpp"
#include "connector/scheduler_half.hpp"
#include "connector/worker/worker_state.hpp"
#include "connector/worker_half.hpp"
#include "tests/engine_simulation/cache.hpp"
#include "tests/engine_simulation/world.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::engine_simulation {

/// Observes the calls of the scheduler half and their results, when both are known.
class observer {
public:
  observer() = default;
  observer(const observer&) = delete;
  observer& operator=(const observer&) = delete;
  virtual ~observer() = default;

  /// `asked`: the answer was preceded by a new lookup.
  virtual void matched(const connector::engine_request& request, const connector::matched_tokens& answer,
                       bool asked) = 0;
  /// Before an allocation: how many leading pages the connector believes to be in the cache.
  virtual void allocating(std::string_view request, std::uint32_t pages_found) = 0;
  virtual void scheduled(const connector::scheduler_output& step, const connector::connector_metadata& said) = 0;
  virtual void reported(const connector::worker_output& output) = 0;
};

/// The scheduler half as it stands around the real rules: passes on what they want to the cache, and what the cache
/// answers to them.
class sim_scheduler_half final : public connector::scheduler_half {
public:
  sim_scheduler_half(world& w, cache& c);

  void observe(observer& by) { observer_ = &by; }

  void on_new_request(const connector::engine_request& request) override;
  connector::matched_tokens get_num_new_matched_tokens(const connector::engine_request& request,
                                                       std::uint32_t computed_tokens) override;
  void update_state_after_alloc(std::string_view request, const connector::block_tables& blocks,
                                std::uint32_t external_tokens) override;
  connector::fetched_pages get_fetched_pages(std::string_view request) const override {
    return state_.get_fetched_pages(request);
  }
  connector::hit_sources get_external_cache_hit_sources(std::string_view request, std::uint32_t tokens) const override {
    return state_.get_external_cache_hit_sources(request, tokens);
  }
  connector::connector_metadata build_connector_meta(const connector::scheduler_output& step) override;
  bool request_finished(std::string_view request) override;
  void update_connector_output(const connector::worker_output& output) override;
  std::vector<connector::cache_event> take_events() override { return state_.take_events(); }
  std::uint32_t get_finished_count() const override;
  bool reset_cache() override;
  result<void> attached() const override { return {}; }
  std::uint64_t passed_over_tokens() const override { return state_.passed_over_tokens(); }
  std::size_t tracked_requests() const override { return state_.tracked_requests(); }

  void lookup_answered(std::uint64_t lookup, const result<lookup_result>& answer);

  const connector::scheduler_state& state() const noexcept { return state_; }
  /// Lookups whose answers the rules have not seen yet.
  std::size_t inbox() const noexcept { return inbox_.size(); }
  std::uint32_t epoch() const noexcept { return epoch_; }

private:
  void pass_time();
  void receive();
  /// Whether there was a lookup.
  bool flush();
  void spoil(connector::connector_metadata& said);

  world& world_;
  cache& cache_;
  observer* observer_ = nullptr;
  connector::scheduler_state state_;
  std::vector<std::pair<std::uint64_t, result<lookup_result>>> inbox_;
  std::vector<connector::load_op> kept_loads_;
  std::uint64_t hooks_ = 0;
  std::uint32_t epoch_ = 0;
};

/// A worker half in the same manner. It also checks that each load is reported as it went.
class sim_worker_half final : public connector::worker_half {
public:
  sim_worker_half(world& w, cache& c, std::uint32_t worker);

  result<void> register_kv_caches(const kv_cache_view&) override { return {}; }
  result<void> register_groups(const std::vector<kv_cache_view>&) override { return {}; }
  result<void> unregister_kv_caches() override { return {}; }
  result<void> attached() const override { return {}; }
  void bind_connector_metadata(connector::connector_metadata metadata) override;
  void clear_connector_metadata() override;
  void handle_preemptions(const connector::connector_metadata& metadata) override;
  void start_load_kv(void* ready) override;
  void wait_for_layer_load(std::string_view) override { pass_time(); }
  void save_kv_layer(std::string_view) override { pass_time(); }
  void wait_for_save(void* ready) override;
  connector::finished_requests get_finished(std::span<const std::string_view> finished) override;
  std::vector<connector::block_id> get_block_ids_with_load_errors() override;
  std::vector<connector::store_outcome> build_connector_worker_meta() override;
  connector::connector_stats get_kv_connector_stats() override { return state_.take_stats(); }
  void shutdown() override;

  void task_ended(connector::task_tag tag, const result<transfer_result>& outcome);
  void cancel_answered();

  const connector::worker_state& state() const noexcept { return state_; }

private:
  /// A load of a request, until it is named or, if it is synchronous, reported.
  struct load {
    connector::store_id id = 0;
    std::string request;
    /// All that its op names, in pages.
    std::vector<connector::block_id> listed;
    std::vector<connector::block_id> blocks;
    std::vector<connector::block_id> filled;
  };

  void pass_time();
  void flush();
  void wait_for_loads();
  void check_reports();
  void check_load(const load& x, bool said_to_have_failed);
  /// False if the outcome is one of a store.
  bool check_synchronous(const connector::store_outcome& x);

  world& world_;
  cache& cache_;
  std::uint32_t worker_;
  connector::worker_state state_;
  std::vector<load> loads_;
  std::unordered_map<connector::task_tag, std::vector<connector::block_id>> loading_;
  std::unordered_map<connector::store_id, std::vector<key_digest>> store_keys_;
  std::vector<std::string> named_;
  std::vector<std::string> failed_;
  std::vector<connector::block_id> reported_;
  std::vector<connector::block_id> late_errors_;
  connector::connector_metadata bound_;
  std::uint64_t hooks_ = 0;
  /// Reports of this step have been taken.
  bool reported_step_ = false;
  bool shut_down_ = false;
};

} // namespace troupe::engine_simulation
