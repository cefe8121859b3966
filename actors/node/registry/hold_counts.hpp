#pragma once

#include "actors/node/registry/coarse_clock.hpp"
#include "actors/node/registry/key_index.hpp"
#include "base/identifiers.hpp"

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>

namespace troupe {

/// How many different keys of each namespace callers from outside keep from being evicted: each caller by its leases,
/// and all that may only read together, by leases and by protected locations. Only those are counted for whom there is
/// a bound. Knows no rules.
class hold_counts {
public:
  /// In place of an owner, whose id is never 0: all callers that may only read.
  static constexpr owner_id readers = 0;

  /// A lease of `who` holds these entries, each once. Returns how many entries `who` holds now.
  std::uint64_t add(owner_id who, std::uint32_t space, std::span<const entry_index> entries);
  /// It does not any more.
  void remove(owner_id who, std::uint32_t space, std::span<const entry_index> entries);

  /// How many entries readers would hold with these ones. What has run out by `now` is forgotten.
  std::uint64_t readers_with(std::uint32_t space, std::span<const entry_index> entries, coarse_time now);
  /// They are protected for a reader.
  void protect(std::uint32_t space, std::span<const entry_index> entries, coarse_time until);

  std::uint64_t count(owner_id who, std::uint32_t space) const;
  /// The namespace is gone, and its leases were removed before.
  void forget_space(std::uint32_t space);
  std::uint64_t resident_bytes() const noexcept;

private:
  struct hold {
    std::uint32_t leases = 0;
    coarse_time until = 0;
  };

  struct holder {
    std::unordered_map<entry_index, hold> entries;
    /// When protection runs out, in about that order.
    std::deque<std::pair<coarse_time, entry_index>> protections;
  };

  struct name {
    owner_id who = 0;
    std::uint32_t space = 0;
    friend bool operator==(const name&, const name&) = default;
  };

  struct hash_name {
    std::size_t operator()(const name& x) const noexcept { return mix(x.who, x.space); }
  };

  std::unordered_map<name, holder, hash_name> holders_;
};

} // namespace troupe
