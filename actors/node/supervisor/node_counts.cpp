#include "actors/node/supervisor/node.hpp"
#include "actors/support/gather.hpp"
#include "actors/support/stats_sum.hpp"

#include <utility>

namespace troupe {

namespace {

/// Children answer from memory, so one that has not answered within this time is stuck, and the request fails. Shorter
/// than the default timeout of metrics scrapers, 10 s.
constexpr auto stats_timeout = std::chrono::seconds(5);

/// Adds the pages of a rank's clients to these.
void add_pages(std::vector<client_stats>& to, const std::unordered_map<owner_id, std::size_t>& places,
               const io_stats& rank, std::uint64_t page_bytes) {
  for (const auto& x : rank.owners)
    if (const auto place = places.find(x.owner); place != places.end()) {
      auto& client = to[place->second];
      client.loaded_pages += x.loaded;
      client.saved_pages += x.saved;
      client.loaded_bytes += x.loaded * page_bytes;
      client.saved_bytes += x.saved * page_bytes;
    }
}

/// Adds what peers have loaded from this node. A peer attaches under its name, once for each namespace.
void add_served(node_stats& to) {
  for (auto& peer : to.cluster.peers)
    for (const auto& client : to.attached)
      if (client.is_node && !peer.self && client.name == peer.node) {
        peer.served_pages += client.loaded_pages;
        peer.served_bytes += client.loaded_bytes;
      }
}

} // namespace

void node::collect_stats(std::function<void(const result<node_stats>&)> on_done) {
  node_stats stats;
  stats.clients = state_.clients();
  stats.disconnected_clients = state_.disconnected_clients();
  stats.remote = remote_totals_->sum(children_.mover.get());
  stats.lingering_clients = state_.lingering_clients(clock().now());
  const auto places = std::make_shared<std::unordered_map<owner_id, std::size_t>>();
  for (const auto& [owner, x] : clients_) {
    places->emplace(owner, stats.attached.size());
    stats.attached.push_back({x.name, children_.served[x.ns].name, x.process_id, x.elsewhere,
                              duration(clock().now() - x.since), x.number, x.is_node});
  }
  for (const auto& x : children_.ranks()) {
    const auto& ns = children_.served[x.ns];
    stats.ranks.push_back({ns.id(), ns.name, x.rank, {}, {}});
  }
  // Two answers per rank, one sum over the shards, and the statistics of the cluster.
  const auto all = gather(2 + 2 * children_.ranks().size(), std::move(stats),
                          [this, on_done = std::move(on_done)](result<node_stats> x) {
                            if (x) {
                              add_served(*x);
                              request(children_.metrics(), stats_timeout, *x).then([] {}, [](const caf::error&) {});
                            }
                            on_done(x);
                          });
  const auto no_answer = [all](const caf::error& e) { all->part_failed(from_caf(e)); };
  for (std::size_t i = 0; i < children_.ranks().size(); ++i) {
    request(children_.ranks()[i].allocator, stats_timeout, stats_atom_v)
        .then(
            [all, i](const allocator_stats& x) {
              all->value().ranks[i].slots = x;
              all->part_done();
            },
            no_answer);
    const auto page_bytes = children_.served[children_.ranks()[i].ns].geometry.page_bytes();
    request(children_.ranks()[i].worker, stats_timeout, stats_atom_v)
        .then(
            [all, i, places, page_bytes](const io_stats& x) {
              auto& to = all->value();
              to.ranks[i].io = x;
              to.ranks[i].io.owners.clear(); // owner ids are secret
              add_pages(to.attached, *places, x, page_bytes);
              all->part_done();
            },
            no_answer);
  }
  if (!peers_)
    all->part_done();
  else
    request(peers_, stats_timeout, stats_atom_v)
        .then(
            [all](const cluster_stats& x) {
              all->value().cluster = x;
              all->part_done();
            },
            // The cluster actor ends before the node does, so an error is no failure.
            [all](const caf::error&) { all->part_done(); });
  sum_registry_stats(this, children_.shards(), stats_timeout, [all](const result<registry_stats>& sum) {
    if (!sum)
      return all->part_failed(sum.error());
    all->value().registry = *sum;
    all->part_done();
  });
}

caf::result<node_stats> node::collect() {
  auto promise = make_response_promise();
  const auto number = counting_.add(promise);
  collect_stats([this, number](const result<node_stats>& stats) {
    if (stats)
      counting_.deliver(number, *stats);
    else
      counting_.deliver(number, to_caf(stats.error()));
  });
  return promise;
}

} // namespace troupe
