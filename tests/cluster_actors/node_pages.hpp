#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::cluster_actors {

using page_bytes = std::vector<std::byte>;

/// What the page of a key has to be in a cluster: its bytes follow from all of these.
page_bytes expected_page(const std::string& cluster, const namespace_id& ns, rank_number rank, const key_digest& key,
                         std::size_t bytes);

/// A lease on keys of a node. It stays known after it has expired, until it is released: the client has to.
struct known_lease {
  owner_id owner = 0;
  namespace_id ns;
  std::set<key_digest> keys;
  timestamp granted{};
  timestamp until{};
};

/// The pages of a node with its leases: a model of its registry, its memory and its disks. It outlives a run of the
/// node.
class node_pages {
public:
  explicit node_pages(std::uint32_t ranks) : ranks_(ranks) {}

  /// False where there is one already.
  bool store(const namespace_id& ns, rank_number rank, const key_digest& key, page_bytes page);
  /// Null where there is none.
  const page_bytes* find(const namespace_id& ns, rank_number rank, const key_digest& key) const;
  bool is_complete(const namespace_id& ns, const key_digest& key) const;
  std::size_t keys(const namespace_id& ns) const;
  /// All keys of which there is a page.
  std::vector<std::pair<namespace_id, key_digest>> all() const;
  /// Whether a page of the key has been evicted, or removed with its namespace, since then.
  bool lost_since(const namespace_id& ns, const key_digest& key, timestamp then) const;

  /// False for a leased key.
  bool evict(const namespace_id& ns, const key_digest& key, timestamp now);
  void remove(const namespace_id& ns, timestamp now);
  /// Flips a bit of a page.
  void damage(const namespace_id& ns, rank_number rank, const key_digest& key);

  void grant(const ticket& which, known_lease lease) { leases_[which] = std::move(lease); }
  void release(const ticket& which) { leases_.erase(which); }
  void retain(const ticket& which, const std::vector<key_digest>& keys);
  void release_all_of(owner_id owner);
  void forget_leases() { leases_.clear(); }
  const std::map<ticket, known_lease>& leases() const noexcept { return leases_; }

private:
  /// By rank; empty where there is no page.
  using key_pages = std::vector<page_bytes>;

  const std::uint32_t ranks_;
  std::map<namespace_id, std::map<key_digest, key_pages>> pages_;
  std::map<std::pair<namespace_id, key_digest>, timestamp> lost_;
  std::map<ticket, known_lease> leases_;
};

} // namespace troupe::cluster_actors
