#include "http/node_http.hpp"

#include "actors/node/metrics/exposition.hpp"
#include "actors/support/ask.hpp"
#include "http/admin.hpp"
#include "http/explain/explain_routes.hpp"
#include "http/handshake/handshake.hpp"
#include "http/hf3fs/hf3fs.hpp"
#include "http/native/native.hpp"
#include "http/page/page.hpp"
#include "http/registry/asking_rounds.hpp"
#include "http/registry/metadata_service.hpp"
#include "http/sglang/sglang.hpp"
#include "http/slots/client_keys.hpp"
#include "http/status/status_routes.hpp"
#include "http/status/status_service.hpp"
#include "messages/messages.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace troupe::http {

struct node_http::readiness {
  std::atomic<bool> serving{true};
};

namespace {

caller_limits limits_of(const config::node_config& config) {
  const auto& x = config.http.limits;
  return {x.leases, x.leased_share, x.readers_share};
}

native::options options_of_native(const config::node_config& config, const slots::client_keys::secret& secret,
                                  std::shared_ptr<item_counts> counts) {
  native::options out;
  out.max_items = std::min(config.registry.max_batch_keys, config.http.limits.keys);
  out.lease_default = config.registry.lease_default;
  out.lease_max = config.registry.lease_max;
  out.readers_lease_max = config.http.limits.readers_lease;
  out.limits = limits_of(config);
  out.reservation_default = config.registry.reservation_deadline;
  out.reservation_max = config.registry.reservation_deadline;
  out.hash_text = [keys = slots::client_keys(secret)](std::string_view text) { return keys.digest(text); };
  out.counts = std::move(counts);
  return out;
}

slots::options options_of_slots(const config::node_config& config, const slots::client_keys::secret& secret,
                                const std::shared_ptr<item_counts>& counts) {
  slots::options out;
  out.max_namespaces = config.hf3fs.max_namespaces;
  out.protect_for = config.hf3fs.protect_locations;
  out.reservation_deadline = config.hf3fs.reservation_deadline;
  out.max_keys = config.http.limits.keys;
  out.key_secret = secret;
  out.limits = limits_of(config);
  out.count_refused = [counts](errc why, std::uint64_t count) { counts->add(why, count); };
  return out;
}

/// The counts of the cluster, as the node's supervisor has them.
std::function<void(std::function<void(result<cluster_stats>)>)> cluster_stats_of(caf::actor_system& system,
                                                                                 const node_actor& node) {
  return [&system, node](std::function<void(result<cluster_stats>)> then) {
    ask<node_stats>(
        system, node,
        [then = std::move(then)](result<node_stats> x) {
          if (x)
            then(std::move(x->cluster));
          else
            then(tl::unexpected<error>(std::move(x.error())));
        },
        stats_atom_v);
  };
}

handshake::options options_of_handshakes(const config::handshake_config& x) {
  return {x.max_payload_bytes, x.max_wait, x.vllm_draft, x.memory_bytes};
}

} // namespace

bool node_http::is_wanted(const config::node_config& config) noexcept {
  return config.http.enabled || config.handshake.http.enabled;
}

result<node_http::listening_sockets> node_http::prepare(const config::node_config& config) {
  listening_sockets out;
  const auto open = [](const config::http_config& x, std::optional<bound_socket>& to) -> result<void> {
    if (!x.enabled)
      return {};
    auto opened = server::prepare(x);
    if (!opened)
      return tl::unexpected<error>(opened.error());
    to = std::move(*opened);
    return {};
  };
  if (auto opened = open(config.http, out.all); !opened)
    return tl::unexpected<error>(opened.error());
  if (auto opened = open(server_of(config.handshake.http, config.http.limits), out.handshakes); !opened)
    return fail(opened.error().code, opened.error().text + " (handshake.http)");
  return out;
}

admin_options node_http::admin_of(caf::actor_system& system, const node_services& services,
                                  const std::shared_ptr<const metadata_service>& service,
                                  const program_facts& program) const {
  admin_options out;
  out.version = program.version;
  out.protocol = protocol_version;
  out.ready = [ready = ready_, condition = services.condition]() -> result<void> {
    if (!ready->serving.load(std::memory_order_relaxed))
      return fail(errc::shutting_down, "the node is stopping");
    return condition ? condition->ready() : result<void>{};
  };
  if (services.condition)
    out.degradations = [condition = services.condition] { return condition->degradations(); };
  out.metrics = {source_of(*metrics_), source_of(system, services.node, services.metrics),
                 source_of_namespaces([service](auto then) { service->describe({}, std::move(then)); }),
                 source_of(services.condition, services.memory, services.disk), source_of_log()};
  if (services.lmcache)
    out.metrics.push_back(source_of_lmcache(services.lmcache));
  if (services.events)
    out.metrics.push_back(source_of_events(services.events));
  if (services.directory)
    out.metrics.push_back(source_of(system, services.directory));
  return out;
}

result<void> node_http::listen(const config::node_config& config, listening_sockets where, router routes,
                               router handshake_routes) {
  if (where.all || config.http.has_socket()) {
    server::listening_sockets open{std::move(where.all), std::nullopt};
    if (config.http.has_socket()) {
      // The directory is this node's own by now: an existing socket in it belongs to a dead process.
      auto made = local_listener::open("http.socket", std::filesystem::absolute(config.data_dir) / config.http.socket);
      if (!made)
        return tl::unexpected<error>(std::move(made.error()));
      socket_ = made->file();
      open.local = std::move(*made);
    }
    auto started = server::start(config.http, std::move(routes), metrics_.get(), std::move(open));
    if (!started)
      return tl::unexpected<error>(started.error());
    server_ = std::move(*started);
  }
  if (where.handshakes) {
    auto started = server::start(server_of(config.handshake.http, config.http.limits), std::move(handshake_routes),
                                 metrics_.get(), {std::move(where.handshakes), std::nullopt});
    if (!started)
      return tl::unexpected<error>(started.error());
    handshake_server_ = std::move(*started);
  }
  return {};
}

result<std::unique_ptr<node_http>> node_http::start(caf::actor_system& system, const node_services& services,
                                                    const config::node_config& config, const program_facts& program,
                                                    bound_socket all) {
  listening_sockets where;
  where.all = std::move(all);
  return start(system, services, config, program, std::move(where));
}

result<std::unique_ptr<node_http>> node_http::start(caf::actor_system& system, const node_services& services,
                                                    const config::node_config& config, const program_facts& program,
                                                    listening_sockets where) {
  std::unique_ptr<node_http> out(new node_http());
  out->ready_ = std::make_shared<readiness>();
  out->metrics_ = std::make_unique<request_metrics>();
  out->directory_ = services.directory;
  const auto service = std::make_shared<const metadata_service>(system, services.shards, services.namespaces,
                                                                services.names, services.own_namespaces);
  const auto admin = out->admin_of(system, services, service, program);
  const auto live_status = node_status::status_service::make(system, {services, service, config, program, admin.ready});
  router routes;
  routes.set_rounds(asking_rounds(system));
  router handshake_routes;
  add_admin_routes(handshake_routes, admin);
  add_admin_routes(routes, admin);
  if (services.directory)
    handshake::add_routes(where.handshakes ? handshake_routes : routes, system, services.directory,
                          options_of_handshakes(config.handshake));
  const auto counts = out->metrics_->shared_items();
  auto native_options = options_of_native(config, services.key_secret, counts);
  if (!config.cluster.name.empty())
    native_options.cluster = cluster_stats_of(system, services.node);
  native_options.name_caller = [clients = services.clients](owner_id owner, const std::string& name) {
    clients->called(owner, name);
  };
  native::add_routes(routes, service, native_options);
  node_status::add_routes(routes, live_status);
  explain::add_routes(routes, explain::explain_service::make(services, service));
  page::add_routes(routes);
  const auto slot_options = options_of_slots(config, services.key_secret, counts);
  if (config.hf3fs.vllm)
    hf3fs::add_routes(routes, service, {slot_options, config.hf3fs.ns, config.hf3fs.world_size});
  if (config.hf3fs.sglang)
    sglang::add_routes(routes, service, {slot_options});
  if (auto listens = out->listen(config, std::move(where), std::move(routes), std::move(handshake_routes)); !listens)
    return tl::unexpected<error>(std::move(listens.error()));
  if (out->server_)
    out->clock_ = node_status::spawn_clock(system, live_status);
  return out;
}

std::optional<std::uint16_t> node_http::port_if_any() const noexcept {
  return server_ && server_->port() != 0 ? std::optional(server_->port()) : std::nullopt;
}

std::optional<std::uint16_t> node_http::handshake_port() const noexcept {
  return handshake_server_ ? std::optional(handshake_server_->port()) : std::nullopt;
}

node_http::~node_http() {
  if (clock_)
    caf::anon_send_exit(clock_, caf::exit_reason::user_shutdown);
}

bool node_http::socket_is_there() const {
  return socket_.path().empty() || socket_.is_there();
}

result<void> node_http::reopen_socket() {
  auto made = local_listener::open("http.socket", std::filesystem::path(socket_.path()));
  if (!made)
    return tl::unexpected<error>(std::move(made.error()));
  socket_ = made->file();
  server_->replace_local(std::move(*made));
  return {};
}

result<void> node_http::reload() {
  result<void> outcome;
  for (const auto* x : {&server_, &handshake_server_})
    if (*x)
      if (auto loaded = (*x)->reload_tokens(); !loaded && outcome)
        outcome = loaded;
  return outcome;
}

void node_http::stop(duration patience) {
  ready_->serving.store(false, std::memory_order_relaxed);
  // Otherwise the stop would wait for pending fetches of engines.
  if (directory_)
    caf::anon_send(directory_, drain_atom_v);
  for (const auto* x : {&server_, &handshake_server_})
    if (*x)
      (*x)->stop(patience);
}

} // namespace troupe::http
