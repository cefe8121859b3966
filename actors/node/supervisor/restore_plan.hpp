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

/// Whether engines reach the namespace over a wire of this section, by the name they say or by none.
bool serves_wire(const config::hf3fs_config& wires, const namespace_spec& space);

/// Who made the namespace, also where its record does not say.
store::space_origin origin_of(const store::namespace_record& record);

/// What a node that starts knows, and what is stored is held against.
struct restore_terms {
  /// The index was kept by the last run of the data directory: nothing has happened that it does not know.
  bool continues = false;
  /// Erase what is stored of namespaces that are not served.
  bool forget_absent = false;
  config::hf3fs_config wires;
  /// Namespaces of the config.
  std::set<namespace_id> own;
  /// Their ranks, and which slab file each has.
  std::map<std::pair<namespace_id, rank_number>, incarnation_number> own_ranks;
  /// `fresh_incarnation`, or what a simulation has in its place.
  std::function<incarnation_number()> fresh = fresh_incarnation;
};

/// Decides at a start what of an index may be believed: docs/decisions/0005-what-the-store-keeps.md. Plain C++; is told
/// the records in the order of the store, namespaces first, then ranks, then pages, and collects what is to be erased.
///
/// A page is believed only if its rank still is the one that published it, and if nobody can have written its slot
/// without the index knowing.
class restore_plan {
public:
  explicit restore_plan(restore_terms terms);

  /// True if the namespace is to be made known, with its ranks and pages; false also for those of the config, which are
  /// known.
  bool admit(const store::namespace_record& record);

  /// A rank of a namespace that was admitted has a slab file of the node with this incarnation, or none: whatever is
  /// stored of it is held against that.
  void serve(const namespace_id& space, rank_number rank, incarnation_number incarnation);

  /// A namespace that was admitted cannot be served after all, and why.
  void set_aside(const namespace_id& space, std::string reason);

  /// With which incarnation to make the rank known, if at all. Ranks of the config are known.
  std::optional<incarnation_number> admit(const store::rank_record& record);

  /// Whether the page may be believed.
  bool admit(const store::page_record& page);

  /// What is to be erased so far, to be durable before anything is served; forgets it.
  store::write_batch take_changes() { return std::exchange(changes_, {}); }
  std::size_t change_bytes() const noexcept { return changes_.bytes(); }

  struct absent_space {
    std::string name;
    std::string reason;
    /// Of these pages nothing is left in the store.
    bool erased = false;
    bool forgotten = false;
    std::uint64_t pages = 0;
  };

  /// Namespaces that are stored and not served.
  std::vector<absent_space> absent() const;

  /// Pages of served namespaces that were erased because a run has left the index aside.
  std::uint64_t left_aside() const;
  /// Pages of earlier registrations of their rank, of slab files that are no more, or of nothing that is known.
  std::uint64_t outlived() const noexcept { return outlived_; }

private:
  struct space_entry {
    std::string name;
    /// Empty if it is served.
    std::string absence;
    /// All its pages go.
    bool erased = false;
    bool forgotten = false;
    /// Its slab files are the node's and go with it, so there is no coming back to what was stored.
    bool made = false;
    std::uint64_t pages = 0;
  };

  void erase_pages(const namespace_id& id, space_entry& space);
  void forget(const namespace_id& id, space_entry& space);

  restore_terms terms_;
  std::map<namespace_id, space_entry> spaces_;
  std::map<std::pair<namespace_id, rank_number>, incarnation_number> ranks_;
  /// Has pages, and is itself not stored.
  std::set<namespace_id> orphans_;
  store::write_batch changes_;
  std::uint64_t outlived_ = 0;
  // The last one looked up, since pages come by namespace.
  space_entry* last_space_ = nullptr;
  namespace_id last_id_;
};

} // namespace troupe
