#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "messages/packed.hpp"

#include <cstdint>
#include <string>
#include <vector>

/// Messages between the nodes of a cluster, and a client's requests to all of them.

namespace troupe {

/// The identity of a node.
struct cluster_card {
  /// The cluster's name; empty: none.
  std::string cluster;
  std::string node;
  /// A new number for each run, so that a node recognizes itself, and others notice its restart.
  std::uint64_t incarnation = 0;
};

/// From a node to a peer, by the peer's address.
struct cluster_hello {
  /// As `protocol_version`.
  std::uint32_t protocol = 0;
  cluster_card from;
};

/// A namespace of a node to which others may attach.
struct cluster_namespace {
  namespace_id id;
  /// Its name at that node.
  std::string name;
};

struct cluster_welcome {
  cluster_card node;
  std::vector<cluster_namespace> namespaces;
};

/// A fetch of missing keys: at least the first one is not here, and the key before them is `parent`, or null. The
/// leading ones that other nodes have are to be fetched.
struct prefix_fetch_request {
  namespace_id ns;
  key_digest parent;
  packed<key_digest> keys;
  /// How long the same lookup has waited for other fetches; only the rest of its time is left.
  duration waited{};
};

/// The number of leading keys that are probably here now; the caller looks them up to be certain.
struct prefix_fetch_reply {
  std::uint32_t keys = 0;
};

/// Asks which of these keys other nodes have; they lease them. For a model with several KV cache groups: its client
/// decides what is fetched once it knows what they have of all groups.
struct search_peers_request {
  namespace_id ns;
  packed<key_digest> keys;
  /// As in `prefix_fetch_request`.
  duration waited{};
};

struct search_peers_reply {
  /// Names what was found, until a `fetch_pages_request` with it or the end of the lookup's time. 0: nothing was found.
  std::uint64_t search = 0;
  /// 1 for each key of the request that at least one other node has complete, else 0; may be shorter.
  packed<std::uint8_t> found;
};

/// Fetch these keys of a search, and no others: leases on what is not among them are released at once, all others when
/// the fetch has ended. Without keys, it only releases. Answered by `prefix_fetch_reply` with the number of keys that
/// were fetched, within the time that the search had left. A search is named once; later it is unknown, and nothing is
/// fetched.
struct fetch_pages_request {
  namespace_id ns;
  std::uint64_t search = 0;
  packed<key_digest> keys;
  /// As in `reserve_request`: empty where keys have no parents.
  packed<key_digest> parents;
};

/// A peer's state and the pages fetched from it.
struct peer_stats {
  /// The address in the config or in etcd.
  std::string address;
  /// The peer's name; empty until its first answer.
  std::string node;
  std::uint64_t incarnation = 0;
  /// Whether it answers, and its pages can be reached as far as is known.
  bool up = false;
  /// Whether the address is this node's own.
  bool self = false;
  /// Why it is not up.
  std::string trouble;
  /// The number of namespaces that both have.
  std::uint64_t namespaces = 0;
  /// How often it was asked for keys; how often it had some; how often the answer was too late.
  std::uint64_t asked = 0;
  std::uint64_t had = 0;
  std::uint64_t late = 0;
  /// Pages that were fetched from it and saved here.
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  /// Pages that it was to send and that did not arrive.
  std::uint64_t failed = 0;
  /// Uses of keys that were observed there, and count here for eviction.
  std::uint64_t learned_keys = 0;
  /// Fetched pages that were read from its slab files, where these are shared; then pages that could not be read there,
  /// and were requested from it instead, by reason as in `transfer_result`.
  std::uint64_t file_pages = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t files_stale = 0;
  std::uint64_t files_damaged = 0;
  std::uint64_t files_failed = 0;
  /// From the last hello to its answer, in microseconds; the first one includes connecting. 0 while it is not up.
  std::uint64_t lag_us = 0;
  /// Pages of this node that the peer has loaded in its present sessions, and their bytes; without those that it has
  /// read from slab files.
  std::uint64_t served_pages = 0;
  std::uint64_t served_bytes = 0;
};

/// This node's state of the list of nodes in etcd.
struct etcd_stats {
  /// Empty where the config names no etcd.
  std::string endpoints;
  /// Whether the last request was answered.
  bool up = false;
  /// The error if it was not.
  std::string trouble;
  /// Whether this node is in the list, by etcd's last answer.
  bool registered = false;
  /// Nodes in the list, and invalid entries.
  std::uint64_t listed = 0;
  std::uint64_t senseless = 0;
  /// Requests, failed ones, and leases that expired early.
  std::uint64_t requests = 0;
  std::uint64_t failed = 0;
  std::uint64_t leases_lost = 0;
};

/// A dead node whose pages are read from its directory.
struct adopted_stats {
  /// The name of its data directory in the shared directory.
  std::string node;
  /// Whether this node holds the claim on it; otherwise another node does.
  bool own = false;
  std::uint64_t keys = 0;
  /// How often keys were looked up there, and how often some were found.
  std::uint64_t asked = 0;
  std::uint64_t had = 0;
  /// Pages that were read there and saved here.
  std::uint64_t pages = 0;
  std::uint64_t bytes = 0;
  /// Pages that did not verify, or could not be read.
  std::uint64_t failed = 0;
};

struct cluster_stats {
  /// Empty where there is no cluster.
  std::string name;
  std::vector<peer_stats> peers;
  etcd_stats etcd{};
  std::vector<adopted_stats> adopted{};
  /// Claims on directories of other nodes that were lost to an owner that came back or to another adopter.
  std::uint64_t claims_lost = 0;
  /// Totals of `adopted_stats` over all nodes that were ever adopted.
  std::uint64_t adopted_pages = 0;
  std::uint64_t adopted_failed = 0;
};

} // namespace troupe
