#pragma once

#include "actors/node/supervisor/node.hpp"
#include "tests/actors/registry_support.hpp"

/// A node whose children are probes, for how it treats clients; and its config.

namespace troupe::test {

inline std::shared_ptr<::troupe::config::node_config> node_options() {
  auto out = std::make_shared<::troupe::config::node_config>();
  out->node_name = "test node";
  out->statistics_interval = duration::zero();
  out->drain_timeout = std::chrono::seconds(3);
  out->io.max_clients = 3;
  out->namespaces = {small_space(2), small_space(1)};
  out->namespaces[1].name = "other";
  out->namespaces[1].salt = "a secret";
  return out;
}

struct node_world : sim {
  probe shard{system()};
  probe allocator0{system()};
  probe allocator1{system()};
  probe worker0{system()};
  probe worker1{system()};
  probe metrics{system()};
  probe namespaces{system()};
  std::shared_ptr<::troupe::config::node_config> options = node_options();
  node_actor supervisor;

  node_world() { start(); }

  void start() {
    node_children children;
    children.spaces = options->namespaces;
    children.add_shard(shard.as<registry_actor>());
    children.add_rank({0, 0, 10, worker0.as<io_worker_actor>(), allocator0.as<allocator_actor>()});
    children.add_rank({0, 1, 10, worker1.as<io_worker_actor>(), allocator1.as<allocator_actor>()});
    children.add_metrics(metrics.as<metrics_actor>());
    children.add({"the namespaces actor", namespaces.as<caf::actor>(), "it is gone"});
    supervisor = spawn<node>(options, std::move(children));
  }

  static attach_request request(const std::string& space_name = "") {
    attach_request out;
    out.client_name = "a client";
    out.process = 1;
    out.space_name = space_name;
    return out;
  }

  answer attach(const probe& link, const attach_request& wanted = request()) {
    return ask(supervisor, wanted, link.as<>());
  }
  owner_id attached(const probe& link) { return attach(link).value<attach_reply>().owner; }

  /// Whom the node has declared dead since the last call, according to each child.
  std::vector<owner_id> dead() {
    std::vector<owner_id> out;
    for (const auto& x : shard.take<owner_died_atom, owner_id>())
      out.push_back(x.get<owner_id>(1));
    for (auto* worker : {&worker0, &worker1}) {
      std::vector<owner_id> same;
      for (const auto& x : worker->take<owner_died_atom, owner_id>())
        same.push_back(x.get<owner_id>(1));
      CHECK(same == out);
    }
    return out;
  }
};

} // namespace troupe::test
