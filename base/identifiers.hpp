#pragma once

#include "base/digest.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

/// Identifiers that rules, I/O and messages share. Plain data, independent of CAF; `inspect` is a template for
/// serialisers.

namespace troupe {

/// The number of a rank, 0 … world size - 1: a tensor-parallel shard of a pipeline stage.
using rank_number = std::uint32_t;

/// The position of a page in a rank's slab file; the page is at `slot × slot_bytes`.
using slot_number = std::uint32_t;

/// Counts how often a slot was given to a key. 0 is never assigned.
using generation_number = std::uint32_t;

/// A block of KV cache that does not exist: the engine has dropped it, or the page is only partly filled. A gather puts
/// zeroes for its tokens into the page; a scatter writes nothing for it.
inline constexpr std::uint32_t null_block = ~std::uint32_t{0};

/// The holder of reservations and leases: a random number per attached client; 0 is none.
using owner_id = std::uint64_t;

/// One use of a slot. Another generation means that the slot has been given to another key since.
struct slot_ref {
  slot_number slot = 0;
  generation_number generation = 0;

  friend constexpr auto operator<=>(const slot_ref&, const slot_ref&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, slot_ref& x) {
  return f(x.slot, x.generation);
}

/// Names one reservation or lease: unique per owner, so that a request that is repeated after a lost reply is
/// recognised.
struct ticket {
  owner_id owner = 0;
  std::uint64_t sequence = 0;

  friend constexpr auto operator<=>(const ticket&, const ticket&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ticket& x) {
  return f(x.owner, x.sequence);
}

/// The page of one key in one rank's slab.
struct page_ref {
  key_digest key;
  slot_ref where;

  friend constexpr auto operator<=>(const page_ref&, const page_ref&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, page_ref& x) {
  return f(x.key, x.where);
}

} // namespace troupe

template <>
struct std::hash<troupe::ticket> {
  std::size_t operator()(const troupe::ticket& x) const noexcept { return troupe::mix(x.owner, x.sequence); }
};
