#pragma once

#include "base/identifiers.hpp"
#include "base/incarnation.hpp"
#include "base/namespace_spec.hpp"
#include "config/node_config.hpp"
#include "store/records.hpp"
#include "store/write_batch.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Whether engines reach the namespace over an HF3FS protocol of this section, by the name they give or by none.
bool serves_protocol(const config::hf3fs_config& wires, const namespace_spec& ns);

/// The creator of the namespace, also where its record does not say.
store::stored_origin origin_of(const store::namespace_record& record);

/// What a starting node knows, and compares stored records with.
struct restore_terms {
  /// The index was kept by the last run of the data directory, so nothing has happened that it does not know.
  bool continues = false;
  /// Erase the records of namespaces that are not served.
  bool forget_absent = false;
  config::hf3fs_config wires;
  /// Namespaces of the config.
  std::set<namespace_id> own;
  /// Their ranks, with the incarnation of each slab file.
  std::map<std::pair<namespace_id, rank_number>, incarnation_number> own_ranks;
  /// `fresh_incarnation`, or a simulation's substitute.
  std::function<incarnation_number()> fresh = fresh_incarnation;
};

/// The decision at a start which records of an index can be trusted: docs/decisions/0005-what-the-store-keeps.md. Plain
/// C++. It receives the records in the order of the store (namespaces, then ranks, then pages), and collects what is to
/// be erased.
///
/// A page is trusted only if its rank still is the one that published it, and if its slot cannot have been written
/// without the index knowing.
class restore_plan {
public:
  explicit restore_plan(restore_terms terms);

  /// Whether to register the namespace, with its ranks and pages; false also for those of the config, which are known
  /// already.
  bool admit(const store::namespace_record& record);

  /// Records that a rank of an admitted namespace has a slab file of the node with this incarnation, or none; stored
  /// records are compared with that.
  void serve(const namespace_id& ns, rank_number rank, incarnation_number incarnation);

  /// An admitted namespace cannot be served, for `reason`.
  void set_aside(const namespace_id& ns, std::string reason);

  /// The incarnation with which to register the rank, if at all. Ranks of the config are known already.
  std::optional<incarnation_number> admit(const store::rank_record& record);

  /// Whether the page can be trusted.
  bool admit(const store::page_record& page);

  /// Takes the erasures so far; they must be durable before anything is served.
  store::write_batch take_changes() { return std::exchange(changes_, {}); }
  std::size_t change_bytes() const noexcept { return changes_.bytes(); }

  struct absent_namespace {
    std::string name;
    std::string reason;
    /// Its page records were erased from the store.
    bool erased = false;
    bool forgotten = false;
    std::uint64_t pages = 0;
  };

  /// Namespaces that are stored but not served.
  std::vector<absent_namespace> absent() const;

  /// The number of pages of served namespaces that were erased because a run did not use the index.
  std::uint64_t left_aside() const;
  /// The number of pages of earlier registrations of their rank, of slab files that no longer exist, or of unknown
  /// namespaces and ranks.
  std::uint64_t outlived() const noexcept { return outlived_; }

private:
  struct namespace_entry {
    std::string name;
    /// Why it is not served; empty if it is.
    std::string absence;
    /// All its pages are erased.
    bool erased = false;
    bool forgotten = false;
    /// Its slab files belong to the node and are removed with it, so its stored pages cannot be used again.
    bool made = false;
    std::uint64_t pages = 0;
  };

  void erase_pages(const namespace_id& id, namespace_entry& ns);
  void forget(const namespace_id& id, namespace_entry& ns);

  restore_terms terms_;
  std::map<namespace_id, namespace_entry> namespaces_;
  std::map<std::pair<namespace_id, rank_number>, incarnation_number> ranks_;
  /// Namespaces that have pages but no record.
  std::set<namespace_id> orphans_;
  store::write_batch changes_;
  std::uint64_t outlived_ = 0;
  // The last namespace looked up, since pages are ordered by namespace.
  namespace_entry* last_namespace_ = nullptr;
  namespace_id last_id_;
};

} // namespace troupe
