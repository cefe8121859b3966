#pragma once

#include "base/identifiers.hpp"

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <span>
#include <vector>

namespace troupe::transfer {

inline const key_digest& key_of(const key_digest& x) noexcept {
  return x;
}
inline const key_digest& key_of(const page_ref& x) noexcept {
  return x.key;
}

/// The part of a batch of keys or pages that belongs to one registry shard, in the order of the batch.
template <class Item>
struct shard_batch {
  std::uint32_t shard = 0;
  /// Positions in the whole batch, ascending.
  std::vector<std::uint32_t> positions;
  std::vector<Item> items;
};

/// Splits a batch, a vector or a part of one, by shard; shards without items are left out.
template <std::ranges::contiguous_range Items, class Item = std::ranges::range_value_t<Items>>
std::vector<shard_batch<Item>> split_by_shard(const Items& items, std::uint32_t shard_count) {
  std::vector<shard_batch<Item>> all(shard_count);
  for (std::uint32_t i = 0; i < items.size(); ++i) {
    auto& batch = all[shard_of(key_of(items[i]), shard_count)];
    batch.positions.push_back(i);
    batch.items.push_back(items[i]);
  }
  std::vector<shard_batch<Item>> out;
  for (std::uint32_t shard = 0; shard < shard_count; ++shard) {
    if (all[shard].items.empty())
      continue;
    all[shard].shard = shard;
    out.push_back(std::move(all[shard]));
  }
  return out;
}

/// The number of leading keys of a batch that are found, when each part found the first `matched` of its `positions`.
template <class Parts>
std::uint32_t matched_prefix(const Parts& parts, std::size_t keys) {
  auto out = static_cast<std::uint32_t>(keys);
  for (const auto& x : parts)
    if (x.matched < x.positions.size())
      out = std::min(out, x.positions[x.matched]);
  return out;
}

/// The number of ascending positions that are among the first `prefix` keys.
inline std::uint32_t positions_within(std::span<const std::uint32_t> positions, std::uint32_t prefix) {
  return static_cast<std::uint32_t>(std::lower_bound(positions.begin(), positions.end(), prefix) - positions.begin());
}

} // namespace troupe::transfer
