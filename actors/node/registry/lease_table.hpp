#pragma once

#include "actors/node/registry/deadline_queue.hpp"
#include "actors/node/registry/owner_index.hpp"
#include "actors/node/tables/key_index.hpp"
#include "base/clock.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace troupe {

/// Number of a lease in its table.
using lease_number = std::uint32_t;

/// A hold on keys of one key space until a deadline. The lease lists which entries it holds; the counts in the entries
/// belong to the key space.
struct lease {
  ticket name;
  std::uint32_t ns = 0;
  timestamp deadline;
  /// The owner has disconnected: the lease counts as expired, independent of its deadline.
  bool doomed = false;
  /// Whether its keys are counted as held by its owner; `by_reader`: and by readers.
  bool counts = false;
  bool by_reader = false;
  /// Whether io workers were notified of its keys.
  bool notified = false;
  /// How often keys were requested under the lease. For the last request: its first key in `entries` and, if not all
  /// were new, which of the keys that were found are there.
  std::uint32_t uses = 0;
  std::uint32_t last_first = 0;
  std::vector<std::uint32_t> last_new;
  /// In the order in which they were leased, each once.
  std::vector<entry_index> entries;
};

/// All leases of a shard, by ticket, by owner and by deadline. Contains no rules.
class lease_table {
public:
  std::optional<lease_number> find(const ticket& name) const;

  /// The ticket must not be in use. Invalidates references to leases.
  lease_number open(const ticket& name, std::uint32_t ns, timestamp deadline);

  /// Removes the lease; its entries must have been given back.
  void close(lease_number number);

  /// Whether a lease of this name that counts has ended recently (the last `remembered_names` are known). This
  /// distinguishes a caller that repeats its release from one that never had this lease.
  bool recently_ended(const ticket& name) const { return ended_.contains(name); }

  void set_deadline(lease_number number, timestamp deadline);

  /// Returns a lease whose deadline has passed.
  std::optional<lease_number> due(timestamp now) const { return deadlines_.due(now); }
  std::optional<timestamp> next_deadline() const { return deadlines_.next(); }

  /// Makes all leases of the owner, or of the namespace, due.
  void doom(owner_id owner);
  void doom_namespace(std::uint32_t ns);

  lease& at(lease_number number) noexcept { return leases_[number]; }
  const lease& at(lease_number number) const noexcept { return leases_[number]; }

  std::uint64_t size() const noexcept { return by_ticket_.size(); }
  std::uint64_t count(owner_id owner) const { return owners_.count(owner); }
  std::uint64_t count_in(std::uint32_t ns) const noexcept { return ns < in_namespace_.size() ? in_namespace_[ns] : 0; }
  std::uint64_t resident_bytes() const noexcept;

  template <class F>
  void for_each(F&& f) const {
    for (const auto& [name, number] : by_ticket_)
      f(leases_[number]);
  }

private:
  static constexpr std::size_t remembered_names = 4096;

  void remember(const ticket& name);

  std::vector<lease> leases_;
  std::vector<lease_number> free_;
  std::unordered_map<ticket, lease_number> by_ticket_;
  owner_index owners_;
  deadline_queue deadlines_;
  /// Leases by namespace.
  std::vector<std::uint64_t> in_namespace_;
  std::unordered_set<ticket> ended_;
  /// The names in `ended_`, each once, as a ring that overwrites the oldest first.
  std::vector<ticket> ended_order_;
  std::size_t oldest_ended_ = 0;
};

} // namespace troupe
