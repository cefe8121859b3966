#include "actors/node/allocator/eviction_shares.hpp"

#include <algorithm>
#include <functional>

namespace troupe {

std::vector<std::uint32_t> eviction_shares::divide(std::uint32_t wanted) {
  std::vector<std::uint32_t> out(shards_.size(), 0);
  if (all_dry()) {
    forced_ = !forced_;
    for (auto& x : shards_)
      x.dry = false;
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < shards_.size(); ++i)
    if (!shards_[i].dry)
      order.push_back(i);
  std::ranges::sort(order, std::greater{}, [&](std::size_t i) { return shards_[i].keys; });
  // The first shards go down to the level of the next, until the wanted number is reached.
  std::uint64_t left = wanted;
  for (std::size_t n = 1; n <= order.size() && left > 0; ++n) {
    const auto step = n < order.size() ? shards_[order[n - 1]].keys - shards_[order[n]].keys : left;
    const auto all = std::min<std::uint64_t>(left, step * n);
    for (std::size_t i = 0; i < n; ++i)
      out[order[i]] += static_cast<std::uint32_t>(all / n + (i < all % n ? 1 : 0));
    left -= all;
  }
  return out;
}

void eviction_shares::released(const release_progress& x) {
  if (x.shard >= shards_.size() || x.released <= shards_[x.shard].released)
    return;
  shards_[x.shard].released = x.released;
  shards_[x.shard].keys = x.keys;
  // An eviction in one shard may free keys of another that were waiting for it.
  forced_ = false;
  for (auto& shard : shards_)
    shard.dry = false;
}

void eviction_shares::answered(std::size_t shard, const evict_reply& reply) {
  released(reply.progress);
  shards_[shard].dry = reply.slots == 0;
}

bool eviction_shares::all_dry() const noexcept {
  return std::ranges::all_of(shards_, [](const shard_state& x) { return x.dry; });
}

} // namespace troupe
