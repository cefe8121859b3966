#include "tests/conformance/slot_node.hpp"

#include "actors/node/namespaces/namespaces.hpp"
#include "actors/node/registry/registry.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/system_config.hpp"
#include "http/registry/asking_rounds.hpp"

#include <algorithm>
#include <future>
#include <utility>

namespace troupe::test {

namespace {

config::caf_config quiet_caf() {
  config::caf_config c;
  c.scheduler_threads = 2;
  return c;
}

} // namespace

struct slot_node::implementation {
  explicit implementation(const slot_node_options& options) {
    registry_peers peers;
    for (std::uint32_t shard = 0; shard < options.shards; ++shard) {
      registry_options how;
      how.shard = shard;
      how.shard_count = options.shards;
      how.hash_seed = 0x5eed;
      peers.shards.push_back(spawn_actor<registry>(system, how, std::vector<namespace_spec>{}, metrics_actor{}));
    }
    shards = peers.shards;
    for (const auto& shard : shards)
      caf::anon_send(shard, bind_atom_v, peers);
    namespaces_config how;
    how.shards = shards;
    how.rest = options.rest;
    how.longest_promise = std::max({options.hf3fs.reservation_deadline, options.sglang.reservation_deadline,
                                    options.hf3fs.protect_for, options.sglang.protect_for});
    ns_actor = spawn_actor<namespaces>(system, how, std::vector<add_namespace_request>{}, std::vector<known_rank>{});
    service = std::make_shared<const metadata_service>(system, shards, ns_actor, how.names);
  }

  ~implementation() {
    server.reset();
    service.reset();
    // The actors that hold on to others end first.
    caf::anon_send_exit(ns_actor, caf::exit_reason::user_shutdown);
    for (const auto& shard : shards)
      caf::anon_send_exit(shard, caf::exit_reason::user_shutdown);
  }

  system_config config{quiet_caf()};
  caf::actor_system system{config};
  std::vector<registry_actor> shards;
  namespaces_actor ns_actor;
  std::shared_ptr<const metadata_service> service;
  std::unique_ptr<http::server> server;
};

result<std::unique_ptr<slot_node>> slot_node::start(const slot_node_options& options) {
  auto parts = std::make_unique<implementation>(options);
  http::router routes;
  routes.set_rounds(http::asking_rounds(parts->system));
  http::hf3fs::add_routes(routes, parts->service, options.hf3fs);
  http::sglang::add_routes(routes, parts->service, options.sglang);
  auto server = http::server::start(options.http, std::move(routes));
  if (!server)
    return tl::unexpected<error>(server.error());
  parts->server = std::move(*server);
  return std::unique_ptr<slot_node>(new slot_node(std::move(parts)));
}

slot_node::slot_node(std::unique_ptr<implementation> x) : implementation_(std::move(x)) {}
slot_node::~slot_node() = default;

std::uint16_t slot_node::port() const noexcept {
  return implementation_->server->port();
}

const metadata_service& slot_node::service() const noexcept {
  return *implementation_->service;
}

std::vector<namespace_info> slot_node::describe() const {
  std::promise<std::vector<namespace_info>> answer;
  auto coming = answer.get_future();
  service().describe({}, [&](result<std::vector<namespace_info>> x) { answer.set_value(std::move(x).value()); });
  return coming.get();
}

} // namespace troupe::test
