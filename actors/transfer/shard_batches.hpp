#pragma once

#include "base/identifiers.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe::transfer {

/// The part of a batch of keys that belongs to one registry shard, in the order of the batch.
struct shard_batch {
  std::uint32_t shard = 0;
  /// Positions in the whole batch, ascending.
  std::vector<std::uint32_t> positions;
  std::vector<key_digest> keys;
};

/// Splits keys by shard; shards without keys are left out.
inline std::vector<shard_batch> split_by_shard(std::span<const key_digest> keys, std::uint32_t shard_count) {
  std::vector<shard_batch> all(shard_count);
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    auto& batch = all[shard_of(keys[i], shard_count)];
    batch.positions.push_back(i);
    batch.keys.push_back(keys[i]);
  }
  std::vector<shard_batch> out;
  for (std::uint32_t shard = 0; shard < shard_count; ++shard) {
    if (all[shard].keys.empty())
      continue;
    all[shard].shard = shard;
    out.push_back(std::move(all[shard]));
  }
  return out;
}

} // namespace troupe::transfer
