#pragma once

#include "actors/node/supervisor/node.hpp"
#include "tests/actors/registry_support.hpp"
#include "tests/memory_extents.hpp"

#include <set>

/// A node whose children are probes, for how it treats clients; and its config.

namespace troupe::test {

inline std::shared_ptr<::troupe::config::node_config> node_options() {
  auto out = std::make_shared<::troupe::config::node_config>();
  out->node_name = "test node";
  out->statistics_interval = duration::zero();
  out->drain_timeout = std::chrono::seconds(3);
  out->io.max_clients = 3;
  out->namespaces = {small_namespace(2), small_namespace(1)};
  out->namespaces[1].name = "other";
  out->namespaces[1].salt = "a secret";
  return out;
}

/// Processes that are there, by their numbers; and the one that asks has 99.
class process_table {
public:
  static constexpr std::int32_t own = 99;

  std::set<std::int32_t> alive{1, 2, own};
  /// The number of watched processes.
  std::size_t watched = 0;
  /// The number of checks.
  std::size_t looks = 0;

  process_watcher watcher() {
    return [this](std::int32_t number) -> result<std::unique_ptr<watched_process>> {
      if (number == own)
        return nullptr;
      if (!alive.contains(number))
        return fail(errc::unreachable, "no such process");
      return std::make_unique<watch>(*this, number);
    };
  }

private:
  class watch final : public watched_process {
  public:
    watch(process_table& table, std::int32_t number) : table_(&table), number_(number) { ++table_->watched; }
    watch(const watch&) = delete;
    watch& operator=(const watch&) = delete;
    ~watch() override { --table_->watched; }

    bool gone() override {
      ++table_->looks;
      return !table_->alive.contains(number_);
    }

  private:
    process_table* table_;
    std::int32_t number_;
  };
};

struct node_world : sim {
  process_table processes;
  std::shared_ptr<memory_extents> extents = std::make_shared<memory_extents>(4, 8192);
  probe shard{system()};
  probe allocator0{system()};
  probe allocator1{system()};
  probe worker0{system()};
  probe worker1{system()};
  probe metrics{system()};
  probe namespaces{system()};
  std::shared_ptr<::troupe::config::node_config> options = node_options();
  node_actor supervisor;
  /// The peers that connected by the Unix socket.
  std::shared_ptr<connected_peers> peers = std::make_shared<connected_peers>();
  /// Whether clients may create namespaces.
  bool makes = false;
  /// The slab of the first rank, which other nodes may read.
  shared_slab slab0{"node-1/space.rank-0.slab", 4711};

  node_world() { start(); }

  void start() {
    node_children children;
    children.served = options->namespaces;
    children.extents = extents;
    children.add_shard(shard.as<registry_actor>());
    children.add_rank({0, 0, 10, worker0.as<io_worker_actor>(), allocator0.as<allocator_actor>(), false, slab0});
    children.add_rank({0, 1, 10, worker1.as<io_worker_actor>(), allocator1.as<allocator_actor>()});
    children.add_metrics(metrics.as<metrics_actor>());
    children.add({"the namespaces actor", namespaces.as<caf::actor>(), "it has ended"});
    if (makes)
      children.namespaces = namespaces.as<namespaces_actor>();
    supervisor = spawn<node>(options, std::move(children), processes.watcher(), std::nullopt, peers);
  }

  static attach_request request(const std::string& namespace_name = "") {
    attach_request out;
    out.client_name = "a client";
    out.process = 1;
    out.namespace_name = namespace_name;
    return out;
  }
  static attach_request request_of(std::int32_t process) {
    auto out = request();
    out.process = process;
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

  /// The clients that the node has reported as quiesced to every io worker since the last call.
  std::vector<owner_id> rested() {
    std::vector<owner_id> out;
    for (const auto& x : worker0.take<owner_quiesced_atom, owner_id>())
      out.push_back(x.get<owner_id>(1));
    std::vector<owner_id> same;
    for (const auto& x : worker1.take<owner_quiesced_atom, owner_id>())
      same.push_back(x.get<owner_id>(1));
    CHECK(same == out);
    CHECK(shard.take<owner_quiesced_atom, owner_id>().empty());
    return out;
  }

  /// Attaches a client that then asks for memory.
  owner_id busy_client(const probe& link, std::int32_t process = 1) {
    const auto reply = attach(link, request_of(process)).value<attach_reply>();
    begin(reply.ranks.front().worker, fetch_atom_v, frame_request{{}, std::chrono::seconds(1)});
    CHECK(worker0.take<fetch_atom, owner_id, frame_request>().size() == 1);
    return reply.owner;
  }
};

} // namespace troupe::test
