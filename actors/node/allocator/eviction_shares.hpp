#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Divides what a rank's allocator wants evicted among the shards. Keys fall on shards by chance, and what each of them
/// evicts is what it needs least: so they should have equally many. Those that have most are asked first, and all
/// together for no more than is wanted.
///
/// A shard gives what is due there, which may be nothing, since keys wait for their children in other shards. Then
/// those are asked; and when nothing is due anywhere, because children are in use, somebody has to give what is not.
class eviction_shares {
public:
  explicit eviction_shares(std::size_t shards) : shards_(shards) {}

  /// One share per shard; 0 for those that are not to be asked.
  std::vector<std::uint32_t> divide(std::uint32_t wanted);

  /// What was divided last is to be had whether it is due or not.
  bool forced() const noexcept { return forced_; }

  /// What a shard answered: how many slots it gave, and the pages that it has left.
  void answered(std::size_t shard, std::uint32_t gave, std::uint64_t pages);
  void failed(std::size_t shard) { shards_[shard].dry = true; }

  /// What could not be had yet may be had by asking again.
  bool hopeful() const noexcept { return !forced_ || !all_dry(); }

private:
  struct shard_state {
    std::uint64_t pages = 0;
    /// It gave nothing, forced or not as the others are now, and nobody else has given anything since.
    bool dry = false;
  };

  bool all_dry() const noexcept;

  std::vector<shard_state> shards_;
  bool forced_ = false;
};

} // namespace troupe
