#pragma once

#include "actors/node/registry/coarse_clock.hpp"
#include "actors/node/tables/key_index.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>

namespace troupe {

/// Counts how many different keys of each namespace HTTP callers keep from being evicted: each caller by its leases,
/// and all read-only callers together by leases and by protected locations. Only holders that have a bound are counted.
/// Contains no rules.
class hold_counts {
public:
  /// Stands for all read-only callers, in place of an owner; an owner's id is never 0.
  static constexpr owner_id readers = 0;

  /// Counts a lease of `who` on these entries, each listed once. Returns how many entries `who` holds now.
  std::uint64_t add(owner_id who, std::uint32_t ns, std::span<const entry_index> entries);
  /// Undoes `add` for a lease that has ended.
  void remove(owner_id who, std::uint32_t ns, std::span<const entry_index> entries);

  /// Returns how many entries readers would hold with these added. Forgets holds that have expired by `now`.
  std::uint64_t readers_with(std::uint32_t ns, std::span<const entry_index> entries, coarse_time now);
  /// Counts the entries as protected for a reader.
  void protect(std::uint32_t ns, std::span<const entry_index> entries, coarse_time until);

  std::uint64_t count(owner_id who, std::uint32_t ns) const;
  /// Forgets a namespace that was removed; its leases must have been removed before.
  void forget_namespace(std::uint32_t ns);
  std::uint64_t resident_bytes() const noexcept;

private:
  struct hold {
    std::uint32_t leases = 0;
    coarse_time until = 0;
  };

  struct holder {
    std::unordered_map<entry_index, hold> entries;
    /// Expiry times of protections, approximately in order.
    std::deque<std::pair<coarse_time, entry_index>> protections;
  };

  struct name {
    owner_id who = 0;
    std::uint32_t ns = 0;
    friend bool operator==(const name&, const name&) = default;
  };

  struct hash_name {
    std::size_t operator()(const name& x) const noexcept { return mix(x.who, x.ns); }
  };

  std::unordered_map<name, holder, hash_name> holders_;
};

} // namespace troupe
