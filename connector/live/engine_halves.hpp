#pragma once

#include "actors/client/node_client.hpp"
#include "connector/live/runtime.hpp"

#include <memory>
#include <optional>

namespace troupe::connector {

/// How halves connect to their node; part of a `runtime`.
struct half_connection {
  /// `client` sets the window and time limits of it.
  link_options where;
  node_client::options client;
  duration attach_limit = std::chrono::seconds(30);
  /// See `runtime_options`.
  bool node_may_be_absent = false;
};

/// The time limit of one attempt to attach in the background.
inline constexpr duration background_attach_limit = std::chrono::seconds(1);

/// Whether an engine fits the namespace; the number of its blocks in one page.
result<std::uint32_t> blocks_per_page(const namespace_spec& ns, const engine_options& engine);

/// The engine's options for the halves of its groups: in the namespace of a group, one block counts as one token, so
/// that pages of any layers have a geometry.
engine_options unit_blocks(const engine_options& engine);

/// As `runtime::make_scheduler_half`.
result<std::unique_ptr<scheduler_half>> make_scheduler_half(caf::actor_system& system, const half_connection& node,
                                                            const engine_options& engine);

/// As `runtime::make_grouped_scheduler_half`; one node for each group.
result<std::unique_ptr<scheduler_half>> make_grouped_scheduler_half(caf::actor_system& system,
                                                                    std::vector<half_connection> nodes,
                                                                    const engine_options& engine,
                                                                    const grouped_layout& layout);

/// As `runtime::make_worker_half`.
result<std::unique_ptr<worker_half>> make_worker_half(caf::actor_system& system, const half_connection& node,
                                                      const engine_options& engine, std::uint32_t worker,
                                                      std::optional<int> gpu);

/// As `runtime::make_page_pool`.
result<std::unique_ptr<page_pool>> make_page_pool(caf::actor_system& system, const half_connection& node,
                                                  const pool_options& options, const kv_cache_view& cache);

} // namespace troupe::connector
