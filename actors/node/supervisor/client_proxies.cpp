#include "actors/node/supervisor/client_proxies.hpp"

#include "actors/node/reception/client_cluster.hpp"
#include "actors/node/reception/client_shard.hpp"
#include "actors/node/reception/client_worker.hpp"
#include "actors/support/actor_support.hpp"
#include "base/host_identity.hpp"
#include "io/page.hpp"

#include <atomic>
#include <utility>

namespace troupe {

client_proxies client_proxies::spawn(caf::actor_system& system, const node_parts& node, const client_terms& client,
                                     attach_reply& reply) {
  client_proxies out;
  out.rights = std::make_shared<client_rights>(client_scope{reply.owner, reply.ns_id, reply.limits.batch_keys,
                                                            reply.limits.batch_pages, node.options.actors.max_requests,
                                                            client.is_node});
  const auto address = node.node.address();
  if (node.peers && !client.is_node) {
    out.cluster = spawn_actor<client_cluster>(system, out.rights, node.peers, address, client.process);
    reply.cluster = out.cluster;
  }
  for (const auto& shard : node.children.shards())
    out.shards.push_back(spawn_actor<client_shard>(system, out.rights, shard, address, client.process));
  reply.shards = out.shards;
  if (client.elsewhere) {
    out.spawn_elsewhere(system, node, client, reply);
    return out;
  }
  for (const auto& rank : node.children.ranks()) {
    if (rank.ns != client.ns)
      continue;
    out.workers.push_back(
        spawn_actor<client_worker>(system, out.rights, rank.rank, rank.worker, address, client.process));
    reply.ranks.push_back({rank.rank, rank.slots, out.workers.back()});
  }
  return out;
}

void client_proxies::spawn_elsewhere(caf::actor_system& system, const node_parts& node, const client_terms& client,
                                     attach_reply& reply) {
  presence = std::make_shared<std::atomic<std::uint32_t>>(0);
  reply.arena = {};
  reply.arena.elsewhere = true;
  reply.arena.movers.items = host_addresses();
  const auto page_bytes = reply.ns.geometry.page_bytes();
  const remote_options how{io::slot_bytes(page_bytes), io::encoded_slot_bytes(page_bytes),
                           node.options.remote.window_bytes, node.options.remote.stall_time};
  for (const auto& rank : node.children.ranks()) {
    if (rank.ns != client.ns)
      continue;
    ++*presence;
    remotes.push_back(spawn_actor<remote_worker>(system, remote_worker_parts{.owner = reply.owner,
                                                                             .ns = reply.ns_id,
                                                                             .rank = rank.rank,
                                                                             .page_bytes = page_bytes,
                                                                             .worker = rank.worker,
                                                                             .node = node.node,
                                                                             .extents = node.children.extents,
                                                                             .mover = node.children.mover,
                                                                             .presence = presence,
                                                                             .options = how,
                                                                             .totals = node.totals}));
    workers.push_back(spawn_actor<client_worker>(system, rights, rank.rank, rank.worker, node.node.address(),
                                                 client.process, remotes.back()));
    reply.ranks.push_back({rank.rank, rank.slots, workers.back(), client.is_node ? rank.slab : shared_slab{}});
  }
}

void client_proxies::end(caf::local_actor& node) const {
  for (const auto& shard : shards)
    node.send_exit(shard, caf::exit_reason::user_shutdown);
  for (const auto& worker : workers)
    node.send_exit(worker, caf::exit_reason::user_shutdown);
  if (cluster)
    node.send_exit(cluster, caf::exit_reason::user_shutdown);
}

} // namespace troupe
