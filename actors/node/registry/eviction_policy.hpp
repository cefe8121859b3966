#pragma once

#include "actors/node/registry/key_index.hpp"
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
  /// It was proposed, and went to make room: it may be asked for again soon.
  evicted,
  /// Its last page was erased, or is not believed any more: nothing follows from it.
  erased,
};

/// What is known of the request that uses entries, or is about to bring them.
struct entry_use {
  /// How many keys of the request were not there, about.
  std::uint64_t missing = 0;
  /// Of entries that somebody holds already: their use goes on, and is none more.
  bool again = false;
  /// It is another node that uses them: when they are used the next time, it is there.
  bool by_peer = false;
};

/// What a policy has seen of how keys are used again.
struct reuse_knowledge {
  /// Keys that came in, ever: what ages are counted in.
  std::uint64_t clock = 0;
  reuse_counts counts;
};

/// The hash of the key of an entry that is in the policy, or is about to be: 64 bits, the same for as long as the
/// process lives, which nobody outside can choose. What a policy remembers of keys that are gone it remembers by it,
/// since the entry's index goes to another key.
using key_hash = std::function<std::uint64_t(entry_index)>;

/// Decides in which order keys of one namespace go when room is needed. It knows nothing of leases, parents or
/// reservations: it proposes, the key space disposes.
///
/// Each entry is in the policy from `inserted` to `left`. Batches are in prefix order. Every operation costs the same
/// however many entries there are, if need be over many calls.
class eviction_policy {
public:
  virtual ~eviction_policy() = default;

  /// These entries will be inserted, unless the request fails. Not told of all that are inserted.
  virtual void announced(std::span<const entry_index> entries, const entry_use& how) = 0;

  /// These keys got their first page.
  virtual void inserted(std::span<const entry_index> entries) = 0;

  /// As `inserted`; the keys were fetched from another node, and are no new ones.
  virtual void fetched(std::span<const entry_index> entries) { inserted(entries); }

  /// The key with this hash, which is not here, was used at another node.
  virtual void used_elsewhere(std::uint64_t) {}

  /// These keys were used. An entry may occur twice.
  virtual void touched(std::span<const entry_index> entries, const entry_use& how) = 0;

  /// The entry still has its key.
  virtual void left(entry_index entry, leave_reason why) = 0;

  /// Writes the next victims, the first to go first and none twice; returns how many, 0 only if there are no entries.
  /// May move a hand, or entries from one queue to another. The caller answers each in turn with `left` or `kept`; of
  /// those at the end it may say nothing, and they are in the policy as before.
  virtual std::size_t propose(std::span<entry_index> out) = 0;

  /// The entry was proposed and cannot go now. All others are proposed before it is again: when as many were kept as
  /// there are entries, with nothing inserted, touched or freed meanwhile, each was looked at once.
  virtual void kept(entry_index entry) = 0;

  /// The entry was kept for its children, not touched since, and has none any more: it goes before all others.
  virtual void freed(entry_index entry) = 0;

  /// The entries go before all others but those that were freed, what is spared first going first, until they are
  /// touched. An entry that is spared already counts as spared just now.
  virtual void spared(std::span<const entry_index> entries) = 0;

  /// What it has learned from, and at which time by its own clock; nothing where it learns nothing.
  virtual std::optional<reuse_knowledge> knowledge() const { return std::nullopt; }

  /// What others have seen, by the clock of this one, in place of what they had seen before.
  virtual void learn_from(const reuse_counts&) {}

  virtual std::uint64_t size() const noexcept = 0;
  /// With what is remembered of keys that are gone.
  virtual std::uint64_t resident_bytes() const noexcept = 0;

  /// All entries, in any order. For tests.
  virtual void for_each(const std::function<void(entry_index)>& f) const = 0;
};

/// Makes the policy of one key space; `hash` is valid as long as the policy.
using eviction_factory = std::unique_ptr<eviction_policy> (*)(key_hash hash);

} // namespace troupe
