#pragma once

#include "actors/node/eviction/listing_policy.hpp"

#include <memory>

namespace troupe {

/// Evicts the least recently used key first, and within one batch the last key first. 8 bytes per entry.
class lru_policy final : public listing_policy {
public:
  lru_policy() : listing_policy(1, 1) {}

private:
  static constexpr position order = 0;

  void admit(position at, bool) override { place(at); }
  void place(position at) override { lists_.link_youngest(order, at); }
  void use(position first, position last, const entry_use& how) override;
  std::size_t next(std::span<entry_index> out) override { return take_oldest(order, out); }
};

/// Does not use hashes.
std::unique_ptr<eviction_policy> make_lru_policy(key_hash hash);

} // namespace troupe
