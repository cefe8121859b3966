#pragma once

#include "messages/registry_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Divides the evictions that a rank's allocator needs among the shards. Keys are spread over shards by chance, and
/// each shard evicts what it needs least, so all shards should have equally many keys. The shards with the most keys
/// are asked first, and all together only for the wanted number.
///
/// A shard evicts what is due there, which may be nothing while keys wait for their children in other shards. Then
/// those shards are asked. If nothing is due anywhere because children are in use, eviction is forced.
///
/// The allocators of a namespace divide independently, but evictions help all ranks: a shard counts what it has
/// released to each rank, and serves no request whose sender has not received all of it (`evict_request::seen`). So
/// ranks that run short at the same time should ask the same shards. They do, because all data for the decision comes
/// with the slots that a shard releases, to all ranks alike.
class eviction_shares {
public:
  explicit eviction_shares(std::size_t shards) : shards_(shards) {}

  /// Returns one share per shard; 0 for shards that are not asked.
  std::vector<std::uint32_t> divide(std::uint32_t wanted);

  /// Whether the last division is to be evicted even if it is not due.
  bool forced() const noexcept { return forced_; }

  /// The value of `evict_request::seen` for the shard.
  std::uint64_t seen(std::size_t shard) const noexcept { return shards_[shard].released; }

  /// Call this only after slots that a shard has released were counted as free or in quarantine.
  void released(const release_progress& x);
  /// A shard's answer to its share; call it after its slots were counted.
  void answered(std::size_t shard, const evict_reply& reply);
  void failed(std::size_t shard) { shards_[shard].dry = true; }

  /// Whether a repeated request may bring more.
  bool hopeful() const noexcept { return !forced_ || !all_dry(); }

private:
  struct shard_state {
    std::uint64_t released = 0;
    /// Number of keys when it last released slots.
    std::uint64_t keys = 0;
    /// It released nothing under the present `forced_`, and no other shard has released anything since.
    bool dry = false;
  };

  bool all_dry() const noexcept;

  std::vector<shard_state> shards_;
  bool forced_ = false;
};

} // namespace troupe
