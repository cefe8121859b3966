#pragma once

#include "connector/groups/grouped_worker_half.hpp"
#include "connector/worker/worker_state.hpp"
#include "connector/worker_half.hpp"
#include "tests/group_simulation/cache.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::group_simulation {

/// The worker half of one group as it stands around the real rules: what they submit goes to the cache.
class group_half final : public connector::worker_half {
public:
  group_half(world& w, cache& c, std::uint32_t worker, std::uint32_t group);

  result<void> register_kv_caches(const kv_cache_view&) override { return {}; }
  result<void> register_groups(const std::vector<kv_cache_view>&) override { return {}; }
  result<void> unregister_kv_caches() override { return {}; }
  result<void> attached() const override { return {}; }
  void bind_connector_metadata(connector::connector_metadata metadata) override { state_.bind(std::move(metadata)); }
  void clear_connector_metadata() override { state_.clear(); }
  void handle_preemptions(const connector::connector_metadata& metadata) override;
  void start_load_kv(void* ready) override;
  void wait_for_layer_load(std::string_view) override {}
  void save_kv_layer(std::string_view) override {}
  void wait_for_save(void* ready) override;
  connector::finished_requests get_finished(std::span<const std::string_view> finished) override;
  std::vector<block_id> get_block_ids_with_load_errors() override { return state_.take_load_errors(); }
  std::vector<connector::store_outcome> build_connector_worker_meta() override;
  connector::connector_stats get_kv_connector_stats() override { return state_.take_stats(); }
  void shutdown() override {}

  std::size_t tasks() const noexcept { return state_.tasks_outstanding() + state_.sessions(); }
  /// The node is lost, and found again.
  void detach();
  void attach();

private:
  void flush();
  void ended(connector::task_tag tag, const result<transfer_result>& outcome);

  world& world_;
  cache& cache_;
  std::uint32_t worker_;
  std::uint32_t group_;
  connector::worker_options options_;
  connector::worker_state state_;
};

/// One worker: the real half for several groups, with the above for each of them.
struct group_worker {
  std::unique_ptr<connector::grouped_worker_half> half;
  std::vector<group_half*> groups;
};
group_worker make_worker(world& w, cache& c, std::uint32_t worker);

} // namespace troupe::group_simulation
