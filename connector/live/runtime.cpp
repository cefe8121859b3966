#include "connector/live/runtime.hpp"

#include "actors/client/link/node_address.hpp"
#include "actors/support/listeners/listeners.hpp"
#include "actors/support/system_config.hpp"
#include "connector/groups/grouped_worker_half.hpp"
#include "connector/live/engine_halves.hpp"

#include <algorithm>

namespace troupe::connector {

result<std::uint32_t> blocks_per_page(const namespace_spec& ns, const engine_options& engine) {
  const auto world = kv_world_size(engine.parallel);
  if (ns.world_size != world)
    return fail(errc::identity_mismatch, "namespace '" + ns.name + "' has a world size of " +
                                             std::to_string(ns.world_size) + ", but the engine has " +
                                             std::to_string(world) + " different pages of each key");
  const auto page_tokens = ns.geometry.block_tokens;
  if (engine.block_tokens == 0 || page_tokens % engine.block_tokens != 0)
    return fail(errc::invalid_argument, "a page of namespace '" + ns.name + "' has " + std::to_string(page_tokens) +
                                            " tokens, which is not a multiple of the engine's blocks of " +
                                            std::to_string(engine.block_tokens));
  return page_tokens / engine.block_tokens;
}

engine_options unit_blocks(const engine_options& engine) {
  auto out = engine;
  out.block_tokens = 1;
  return out;
}

namespace {

result<void> check_layout(const engine_options& engine, const grouped_layout& layout) {
  if (auto sound = validate(layout.groups, layout.page_tokens); !sound)
    return sound;
  if (layout.namespaces.size() != layout.groups.size())
    return fail(errc::invalid_argument, "there are " + std::to_string(layout.namespaces.size()) + " namespaces for " +
                                            std::to_string(layout.groups.size()) + " groups");
  for (std::size_t g = 0; g < layout.groups.size(); ++g)
    if (const auto blocks = blocks_per_page(layout.groups[g], layout.page_tokens);
        layout.namespaces[g].geometry.block_tokens != blocks)
      return fail(errc::invalid_argument, "group " + std::to_string(g) + ": its pages have " + std::to_string(blocks) +
                                              " blocks, but its namespace has " +
                                              std::to_string(layout.namespaces[g].geometry.block_tokens));
  if (engine.synchronous_loads)
    return fail(errc::invalid_argument,
                "loads of a model with several groups of layers cannot be synchronous: an engine "
                "does not compute again what such a load did not bring");
  if (engine.parallel.context_parallel > 1)
    return fail(errc::invalid_argument, "models with several groups of layers work without context parallelism only");
  for (std::size_t g = 0; g < layout.groups.size(); ++g)
    if (layout.groups[g].stage > engine.parallel.pipeline_parallel)
      return fail(errc::invalid_argument, "group " + std::to_string(g) + " is of pipeline stage " +
                                              std::to_string(layout.groups[g].stage) + " of " +
                                              std::to_string(engine.parallel.pipeline_parallel));
  return {};
}

/// The group of a worker whose tokens are counted in statistics: one that holds all of them, if there is one.
grouped_worker_half::token_count counted_group(const grouped_layout& layout, const std::vector<std::uint32_t>& own) {
  grouped_worker_half::token_count out;
  out.group = own.front();
  for (const auto g : own)
    if (layout.groups[g].kind == group_kind::full)
      out.group = g;
  out.per_block = layout.page_tokens / blocks_per_page(layout.groups[out.group], layout.page_tokens);
  return out;
}

} // namespace

class runtime::parts {
public:
  static result<std::unique_ptr<parts>> make(const runtime_options& options, node_address where) {
    const system_config config(caf_options(options));
    // The one thread is that of the listener.
    if (auto room = config.check_room(1); !room)
      return tl::unexpected<error>(room.error());
    auto out = std::make_unique<parts>(options, std::move(where));
    auto opened = listeners::make(out->system_, options_of(options));
    if (!opened)
      return tl::unexpected<error>(opened.error());
    out->listeners_ = std::move(*opened);
    out->node_.where.dialer = out->listeners_->dialer();
    out->node_.where.handed = out->listeners_->handed();
    return out;
  }

  parts(const runtime_options& options, node_address where) : config_(caf_options(options)), system_(config_) {
    node_.where.where = std::move(where);
    node_.where.namespace_name = options.namespace_name;
    node_.where.ns = options.ns;
    node_.where.client_name = options.client_name;
    node_.client.transfer.window_bytes = options.window_bytes;
    node_.client.transfer.batch_pages = options.batch_pages;
    node_.client.transfer.encoding = options.encoding;
    node_.client.attach.request_timeout = options.request_timeout;
    node_.attach_limit = options.attach_limit;
    node_.node_may_be_absent = options.node_may_be_absent;
  }

  caf::actor_system& system() noexcept { return system_; }

  /// The connection of the options, or the same with this namespace.
  half_connection node(const std::optional<namespace_spec>& ns) const {
    auto out = node_;
    if (ns) {
      out.where.namespace_name.clear();
      out.where.ns = ns;
    }
    return out;
  }

private:
  static config::caf_config caf_options(const runtime_options& options) {
    config::caf_config out;
    out.scheduler_threads = options.threads;
    return out;
  }

  static listener_options options_of(const runtime_options& options) {
    listener_options out;
    out.connect_time = std::min(out.connect_time, options.request_timeout / 2);
    if (!options.certificate.empty())
      out.tls = tls_identity{options.certificate, options.key, options.authorities};
    return out;
  }

  system_config config_;
  caf::actor_system system_;
  std::unique_ptr<listeners> listeners_;
  half_connection node_;
};

runtime::runtime(std::unique_ptr<parts> made) : parts_(std::move(made)) {}

runtime::~runtime() = default;

result<std::unique_ptr<runtime>> runtime::create(const runtime_options& options) {
  auto where = parse_node_address(options.node);
  if (!where)
    return tl::unexpected<error>(where.error());
  if (options.certificate.empty() != options.key.empty() || options.key.empty() != options.authorities.empty())
    return fail(errc::invalid_argument, "certificate, key and authorities must be given together");
  auto made = parts::make(options, std::move(*where));
  if (!made)
    return tl::unexpected<error>(made.error());
  return std::unique_ptr<runtime>(new runtime(std::move(*made)));
}

result<std::unique_ptr<scheduler_half>> runtime::make_scheduler_half(const engine_options& engine,
                                                                     const std::optional<namespace_spec>& ns) {
  return connector::make_scheduler_half(parts_->system(), parts_->node(ns), engine);
}

result<std::unique_ptr<worker_half>> runtime::make_worker_half(const engine_options& engine, std::uint32_t worker,
                                                               std::optional<int> gpu,
                                                               const std::optional<namespace_spec>& ns) {
  return connector::make_worker_half(parts_->system(), parts_->node(ns), engine, worker, gpu);
}

result<std::unique_ptr<scheduler_half>> runtime::make_grouped_scheduler_half(const engine_options& engine,
                                                                             grouped_layout layout) {
  if (auto sound = check_layout(engine, layout); !sound)
    return tl::unexpected(std::move(sound.error()));
  std::vector<half_connection> nodes;
  for (std::size_t g = 0; g < layout.groups.size(); ++g) {
    layout.groups[g].ns = layout.namespaces[g].id();
    nodes.push_back(parts_->node(layout.namespaces[g]));
  }
  return connector::make_grouped_scheduler_half(parts_->system(), std::move(nodes), engine, layout);
}

result<std::unique_ptr<worker_half>> runtime::make_grouped_worker_half(const engine_options& engine,
                                                                       const grouped_layout& layout,
                                                                       std::uint32_t worker, std::optional<int> gpu) {
  if (auto sound = check_layout(engine, layout); !sound)
    return tl::unexpected(std::move(sound.error()));
  if (worker >= worker_count(engine.parallel))
    return fail(errc::out_of_range,
                "worker " + std::to_string(worker) + " of " + std::to_string(worker_count(engine.parallel)));
  const auto own = groups_of_worker(layout.groups, engine.parallel, worker);
  if (own.empty())
    return fail(errc::invalid_argument,
                "pipeline stage " + std::to_string(stage_of(engine.parallel, worker) + 1) + " has no group of layers");
  auto of_pages = unit_blocks(engine);
  of_pages.parallel = layout_of_group(layout.groups, engine.parallel);
  const auto number = are_of_stages(layout.groups) ? worker_in_stage(engine.parallel, worker) : worker;
  std::vector<std::unique_ptr<worker_half>> halves(layout.groups.size());
  for (const auto g : own) {
    auto node = parts_->node(layout.namespaces[g]);
    node.client.transfer.window_bytes /= own.size(); // they share what a worker may pin
    auto half = connector::make_worker_half(parts_->system(), node, of_pages, number, gpu);
    if (!half)
      return half;
    halves[g] = std::move(*half);
  }
  return std::make_unique<grouped_worker_half>(std::move(halves), counted_group(layout, own));
}

result<std::unique_ptr<page_pool>> runtime::make_page_pool(const pool_options& options, const kv_cache_view& cache,
                                                           const std::optional<namespace_spec>& ns) {
  return connector::make_page_pool(parts_->system(), parts_->node(ns), options, cache);
}

} // namespace troupe::connector
