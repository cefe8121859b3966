#pragma once

#include "actors/cluster/etcd/etcd_protocol.hpp"
#include "actors/cluster/learning/shared_learning.hpp"
#include "actors/cluster/pages/fetching.hpp"
#include "actors/cluster/pages/inbound_transfers.hpp"
#include "actors/cluster/pages/session_rules.hpp"
#include "actors/cluster/pages/staging_client.hpp"
#include "actors/cluster/peers/membership.hpp"
#include "actors/cluster/peers/peer_connection.hpp"
#include "messages/messages.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Events of other threads and of the other actor system, which a `cluster` receives as messages.

namespace troupe::cluster {

/// An error also where the peer could not be connected to.
struct hello_answered {
  say_hello hello;
  result<cluster_welcome> answer;
};

/// A connection to a peer, which is to send its first hello.
struct line_made {
  say_hello first;
  connected_peer line;
};

struct line_lost {
  peer_number peer = 0;
};

/// Names of seeds, each with the addresses of its nodes; none where it could not be resolved.
struct seeds_resolved {
  std::vector<std::pair<std::string, std::vector<std::string>>> found;
};

struct namespace_opened {
  namespace_id ns;
  result<opened_client> client;
};

struct session_opened {
  session_name session;
  result<opened_client> client;
};

struct peer_answered {
  fetch_call call = 0;
  session_name session;
  result<lookup_result> found;
};

/// To a search for single keys.
struct peer_searched {
  fetch_call call = 0;
  session_name session;
  result<lookup_result> found;
};

/// Pages to be loaded from a peer into blocks of a staging buffer.
struct pages_requested {
  peer_number peer = 0;
  namespace_id ns;
  std::uint32_t rank = 0;
  std::shared_ptr<staging_buffer> memory;
  transfer_task work;
  inbound_transfers::receiver then;
};

struct pages_moved {
  fetch_call call = 0;
  namespace_id ns;
  result<transfer_result> saved;
  sending_counts sent;
};

struct shard_answered {
  ask_shard asked;
  result<reuse_reply> answer;
};

/// The dead nodes whose directories are read have changed.
struct adopted_changed {};

/// Not one of the requested pages of a dead node could be read.
struct adopted_unreadable {
  peer_number peer = 0;
};

struct etcd_answered {
  std::uint64_t number = 0;
  result<etcd_reply> answer;
};

struct etcd_watch_line {
  std::uint64_t number = 0;
  std::string line;
};

struct etcd_watch_ended {
  std::uint64_t number = 0;
};

using cluster_event =
    std::variant<hello_answered, line_made, line_lost, seeds_resolved, namespace_opened, session_opened, peer_answered,
                 peer_searched, pages_requested, pages_moved, shard_answered, adopted_changed, adopted_unreadable,
                 etcd_answered, etcd_watch_line, etcd_watch_ended>;

/// One of them as a message, which never leaves the process.
struct posted_event {
  std::shared_ptr<cluster_event> what;
};

} // namespace troupe::cluster

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::cluster::posted_event)
