#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "messages/packed.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// What nodes of a cluster say to each other, and what a client asks of all of them.

namespace troupe {

/// Who a node is.
struct cluster_card {
  /// Of which cluster; empty: of none.
  std::string cluster;
  std::string node;
  /// Another one for each run, so that a node knows itself, and others know that it has begun anew.
  std::uint64_t incarnation = 0;
};

/// From a node to one that its config names.
struct cluster_hello {
  /// As `protocol_version`.
  std::uint32_t protocol = 0;
  cluster_card from;
};

/// A namespace of a node that others may attach to.
struct cluster_space {
  namespace_id id;
  /// What it is called there.
  std::string name;
};

struct cluster_welcome {
  cluster_card node;
  std::vector<cluster_space> spaces;
};

/// These keys are not here, the first one at least, and the one before them is `parent`, or null. What other nodes have
/// of them, from the first one on, is to be here as well.
struct bring_request {
  namespace_id space;
  key_digest parent;
  packed<key_digest> keys;
  /// What the same lookup has waited for others already: it waits for the rest of its time only.
  duration waited{};
};

/// So many of them, from the first one on, are probably here now: whoever relies on them looks them up.
struct bring_reply {
  std::uint32_t keys = 0;
};

/// What a node knows of another one, and has had from it.
struct peer_stats {
  /// As in the config, or in etcd.
  std::string address;
  /// Empty until it has said it.
  std::string node;
  std::uint64_t incarnation = 0;
  /// It answers, and is asked.
  bool up = false;
  /// It is this node: its own place in the list.
  bool self = false;
  /// Why it is not up.
  std::string trouble;
  /// Namespaces of both.
  std::uint64_t spaces = 0;
  /// How often it was asked for keys; how often it had some, and how often no answer came in time.
  std::uint64_t asked = 0;
  std::uint64_t had = 0;
  std::uint64_t late = 0;
  /// That were fetched from it, and are pages of this node now.
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  /// Pages that it was to have, and that did not come.
  std::uint64_t failed = 0;
  /// Uses of keys that were seen there, and count here for what is evicted.
  std::uint64_t learned_keys = 0;
  /// Of what came, what was read from its slab files, where these are shared; and pages that were to be, and were asked
  /// of it instead, see `transfer_result`.
  std::uint64_t file_pages = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;
  /// From the last hello to its answer, in microseconds; the first one has to connect. 0 while it is not up.
  std::uint64_t lag_us = 0;
};

/// What a node has of the list of nodes in etcd.
struct etcd_stats {
  /// Empty where the config names none.
  std::string endpoints;
  /// It has answered last.
  bool up = false;
  /// Why it has not.
  std::string trouble;
  /// This node is in the list, as far as etcd has said.
  bool registered = false;
  /// Nodes in the list, and entries that are none.
  std::uint64_t listed = 0;
  std::uint64_t senseless = 0;
  /// Requests, those that failed, and leases that were over before their time.
  std::uint64_t requests = 0;
  std::uint64_t failed = 0;
  std::uint64_t leases_lost = 0;
};

/// A node that is dead, and whose pages are read where it has left them.
struct adopted_stats {
  /// As its data directory is called, in the one that all share.
  std::string node;
  /// This node has the claim on it; else another one has.
  bool own = false;
  std::uint64_t keys = 0;
  /// How often it was looked up whether keys are there, and how often some were.
  std::uint64_t asked = 0;
  std::uint64_t had = 0;
  /// That were read from there, and are pages of this node now.
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  /// That did not verify, or could not be read.
  std::uint64_t failed = 0;
};

struct cluster_stats {
  /// Empty where there is no cluster.
  std::string name;
  std::vector<peer_stats> peers;
  etcd_stats etcd{};
  std::vector<adopted_stats> adopted{};
  /// On directories of other nodes, to an owner that came back or to another adopter.
  std::uint64_t claims_lost = 0;
  /// Of all nodes that were ever adopted, as in `adopted_stats`.
  std::uint64_t adopted_pages = 0;
  std::uint64_t adopted_failed = 0;
};

} // namespace troupe
