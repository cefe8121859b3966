#pragma once

#include "actors/node/tables/key_index.hpp"
#include "base/reuse_counts.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace troupe {

/// Why an entry leaves a policy.
enum class leave_reason : std::uint8_t {
  /// It was proposed, and evicted to make room: it may be requested again soon.
  evicted,
  /// Its last page was erased or found invalid: this says nothing about its use.
  erased,
};

/// What is known about the request that uses entries, or is about to insert them.
struct entry_use {
  /// Approximately how many keys of the request were not found.
  std::uint64_t missing = 0;
  /// The entries are held already: this continues an earlier use and is not counted.
  bool again = false;
  /// Another node uses them, so their next use happens there.
  bool by_peer = false;
};

/// What a policy has observed of how keys are used again.
struct reuse_knowledge {
  /// Number of keys inserted so far: the unit of ages.
  std::uint64_t clock = 0;
  reuse_counts counts;
};

/// The 64-bit hash of the key of an entry that is in the policy, or is about to be. It is constant for the life of the
/// process, and clients cannot choose it. A policy remembers evicted keys by this hash, because the entry's index goes
/// to another key.
using key_hash = std::function<std::uint64_t(entry_index)>;

/// Decides the order in which keys of one namespace are evicted. It does not know leases, parents or reservations: it
/// proposes, and the key space decides.
///
/// Each entry is in the policy from `inserted` to `left`. Batches are in prefix order. The cost of every operation does
/// not depend on the number of entries; work may be spread over many calls.
class eviction_policy {
public:
  virtual ~eviction_policy() = default;

  /// Announces that these entries will be inserted unless the request fails. Not called for all that are inserted.
  virtual void announced(std::span<const entry_index> entries, const entry_use& how) = 0;

  /// These keys have their first page.
  virtual void inserted(std::span<const entry_index> entries) = 0;

  /// As `inserted`, for keys that were fetched from another node and so are not new.
  virtual void fetched(std::span<const entry_index> entries) { inserted(entries); }

  /// The key with this hash, which is not here, was used at another node.
  virtual void used_elsewhere(std::uint64_t) {}

  /// These keys were used. An entry may occur twice.
  virtual void touched(std::span<const entry_index> entries, const entry_use& how) = 0;

  /// The entry leaves the policy; it still has its key.
  virtual void left(entry_index entry, leave_reason why) = 0;

  /// Writes the next victims, first to be evicted first and none twice. Returns how many; 0 only if there are no
  /// entries. May move a hand, or entries from one queue to another. The caller answers each in turn with `left` or
  /// `kept`; it may leave out those at the end, which stay in the policy as before.
  virtual std::size_t propose(std::span<entry_index> out) = 0;

  /// The entry was proposed and cannot be evicted now. All others are proposed before it is proposed again: when as
  /// many were kept as there are entries, with nothing inserted, touched or freed meanwhile, each was examined once.
  virtual void kept(entry_index entry) = 0;

  /// The entry was kept for its children, was not touched since, and has no children any more: it is evicted before all
  /// others.
  virtual void freed(entry_index entry) = 0;

  /// The entries are evicted before all others except the freed ones, in the order they were spared, until they are
  /// touched. Sparing an entry again moves it to the end of that order.
  virtual void marked_evict_first(std::span<const entry_index> entries) = 0;

  /// What the policy has observed, and its own clock; nothing if the policy does not learn.
  virtual std::optional<reuse_knowledge> knowledge() const { return std::nullopt; }

  /// Replaces what other nodes have observed, by the clock of this policy.
  virtual void learn_from(const reuse_counts&) {}

  virtual std::uint64_t size() const noexcept = 0;
  /// Includes what is remembered of evicted keys.
  virtual std::uint64_t resident_bytes() const noexcept = 0;

  /// All entries, in any order. For tests.
  virtual void for_each(const std::function<void(entry_index)>& f) const = 0;
};

/// Makes the policy of one key space; `hash` is valid as long as the policy.
using eviction_factory = std::unique_ptr<eviction_policy> (*)(key_hash hash);

} // namespace troupe
