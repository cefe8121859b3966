#pragma once

#include "connector/worker_half.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe::connector {

/// A worker half of a model with several groups of layers, made of one half for each group. Ops go to the half of their
/// group; a request is received when the loads of all its groups have ended, and failed if one of them has. A worker of
/// one pipeline stage has some of the groups alone: it names the loads of others as received at once, since an engine
/// waits until all of its workers have named a request.
class grouped_worker_half final : public worker_half {
public:
  /// Tokens in statistics: those of the blocks of one group, as all groups hold the same tokens.
  struct token_count {
    std::uint32_t group = 0;
    /// Tokens for each of its blocks that the group's half counts as one token.
    std::uint32_t per_block = 1;
  };

  /// Groups in the order of their numbers; null where another pipeline stage has the group. At least one is not.
  grouped_worker_half(std::vector<std::unique_ptr<worker_half>> groups, const token_count& counts)
      : groups_(std::move(groups)), counts_(counts) {}

  /// The layers of all groups, one group after the other, are registered by `register_groups`: those that this worker
  /// has.
  result<void> register_kv_caches(const kv_cache_view& cache) override;
  result<void> register_groups(const std::vector<kv_cache_view>& caches) override;
  result<void> unregister_kv_caches() override;
  result<void> attached() const override;
  void bind_connector_metadata(connector_metadata metadata) override;
  void clear_connector_metadata() override;
  void handle_preemptions(const connector_metadata& metadata) override;
  void start_load_kv(void* ready) override;
  void wait_for_layer_load(std::string_view) override {}
  void save_kv_layer(std::string_view) override {}
  void wait_for_save(void* ready) override;
  finished_requests get_finished(std::span<const std::string_view> finished) override;
  std::vector<block_id> get_block_ids_with_load_errors() override;
  std::vector<store_outcome> build_connector_worker_meta() override;
  connector_stats get_kv_connector_stats() override;
  void shutdown() override;

private:
  struct open_load {
    /// Groups whose load has not ended.
    std::uint32_t missing = 0;
    bool failed = false;
  };

  /// Calls `f` with the half of each group that this worker has.
  template <class F>
  void each(F&& f) const {
    for (const auto& group : groups_)
      if (group)
        f(*group);
  }

  std::vector<std::unique_ptr<worker_half>> groups_;
  token_count counts_;
  std::unordered_map<std::string, open_load> loads_;
  /// Requests whose loads are those of other stages.
  std::vector<std::string> of_others_;
};

} // namespace troupe::connector
