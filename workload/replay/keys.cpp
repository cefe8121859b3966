#include "workload/replay/keys.hpp"

#include <bit>
#include <cstddef>

namespace troupe::replay {

static_assert(std::endian::native == std::endian::little, "keys must be the same on every machine");

std::vector<key_digest> chain_keys(std::span<const std::uint64_t> hash_ids, std::uint64_t salt) {
  key_digest parent;
  if (salt != 0)
    parent = hash_key(std::as_bytes(std::span(&salt, 1)));
  std::vector<key_digest> keys;
  keys.reserve(hash_ids.size());
  for (const auto& id : hash_ids) {
    parent = chain_key(parent, std::as_bytes(std::span(&id, 1)));
    keys.push_back(parent);
  }
  return keys;
}

std::vector<key_digest> parents_of(std::span<const key_digest> keys) {
  std::vector<key_digest> parents(keys.size());
  for (std::size_t i = 1; i < keys.size(); ++i)
    parents[i] = keys[i - 1];
  return parents;
}

} // namespace troupe::replay
