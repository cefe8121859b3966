#pragma once

#include "base/digest.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

/// Identifiers that rules, io and messages share. Plain data, free of CAF; `inspect` is a template so that a
/// serialiser can walk them.

namespace troupe {

/// One tensor-parallel shard of one pipeline stage, 0 … world size - 1.
using rank_number = std::uint32_t;

/// Position of a page in a rank's slab file; the page lies at `slot × slot_bytes`.
using slot_number = std::uint32_t;

/// Counts how often a slot was given to a key. 0 is never given out.
using generation_number = std::uint32_t;

/// Stands for a block of KV cache that does not exist: the engine has dropped it, or the page is only partly filled. In
/// a gather its tokens are zeroes in the page; a scatter writes nothing for it.
inline constexpr std::uint32_t null_block = ~std::uint32_t{0};

/// Who holds reservations and leases: one per attached client, random, 0 is nobody.
using owner_id = std::uint64_t;

/// A slot as it was given out once. Comparing the generation tells whether it has been given to another key since.
struct slot_ref {
  slot_number slot = 0;
  generation_number generation = 0;

  friend constexpr auto operator<=>(const slot_ref&, const slot_ref&) = default;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, slot_ref& x) {
  return f(x.slot, x.generation);
}

/// Names one reservation or lease: unique per owner, so that a request repeated after a lost reply is recognised.
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
