#pragma once

#include "actors/client/link/link.hpp"
#include "actors/client/node_client.hpp"
#include "actors/cluster/cluster_events.hpp"
#include "actors/cluster/etcd/etcd_channel.hpp"
#include "actors/cluster/etcd/etcd_rules.hpp"
#include "actors/cluster/pages/staging_client.hpp"
#include "actors/cluster/peers/peer_connection.hpp"
#include "base/clock.hpp"
#include "base/error.hpp"
#include "config/node_config.hpp"

#include <caf/io/middleman_actor.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::cluster {

/// A connection to be made: the arguments of a `peer_connection`.
struct line_order {
  node_address where;
  /// A dialer that is left over from another peer; null: the line gets a new one.
  caf::io::middleman_actor spare{};
  duration limit{};
  /// Called in any thread when the connection has ended.
  std::function<void()> on_lost;
};

/// A client to be attached to a namespace: the arguments of `open_staging_client`.
struct client_order {
  link_options where;
  node_client::options how;
  namespace_id ns;
  std::uint64_t memory_bytes = 0;
  /// Set for a session with a peer.
  std::optional<namespace_here> like{};
};

/// How a `cluster` reaches nodes: connections, attachments, and names of seeds. Everything that may block, and all that
/// another thread or another process does for the actor; a simulation has an implementation of its own.
///
/// Each function returns at once. An order that is accepted has its result passed to `then`, once, in any thread; not
/// if the network ends before. An order that is refused does not, and the error is that of an attempt that failed.
class peer_network {
public:
  peer_network() = default;
  peer_network(const peer_network&) = delete;
  peer_network& operator=(const peer_network&) = delete;
  virtual ~peer_network() = default;

  /// The actor system in which this node is a client of others, with connections and a name of its own.
  virtual caf::actor_system& system() = 0;

  virtual result<void> connect(line_order order, std::function<void(result<connected_peer>)> then) = 0;
  /// Ends a dialer, with its thread and all connections that it has made.
  virtual void end_dialer(caf::io::middleman_actor which) = 0;

  virtual result<void> open(client_order order, std::function<void(result<opened_client>)> then) = 0;
  /// Detaches, also when the network is ending. The memory is kept until nothing of the client accesses it any more.
  virtual void close(opened_client client) = 0;

  /// Whether names of seeds can be resolved: false where all seeds are addresses.
  virtual bool has_resolver() const = 0;
  virtual result<void> resolve(std::vector<config::cluster_seed> names, std::function<void(seeds_resolved)> then) = 0;

  /// Ends a channel, also when the network is ending, and with this request where there is one.
  virtual void close(std::shared_ptr<etcd_channel> channel, std::optional<etcd_request> last) = 0;
};

} // namespace troupe::cluster
