#pragma once

#include "base/digest.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::replay {

/// The keys of a request's blocks, from the block ids of the trace: key i is `chain_key` of key i - 1 and id i, so it
/// depends on all ids before it, and equal ids after different prefixes have different keys. A salt other than 0
/// changes every key, so that a second replay on the same node has no hits from the first.
std::vector<key_digest> chain_keys(std::span<const std::uint64_t> hash_ids, std::uint64_t salt = 0);

/// The parent of each key, as in a reserve request: null for the first, else the previous key.
std::vector<key_digest> parents_of(std::span<const key_digest> keys);

} // namespace troupe::replay
