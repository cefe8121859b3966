#pragma once

#include "messages/registry_messages.hpp"

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
///
/// The allocators of a namespace divide for themselves, and still evict together: a shard counts what it has released
/// to each rank, and serves no request whose sender had not heard of all of it (`evict_request::seen`). So ranks that
/// become short at the same time should ask the same shards. They do, since all that decides it comes with the slots
/// that a shard releases, to all ranks alike.
class eviction_shares {
public:
  explicit eviction_shares(std::size_t shards) : shards_(shards) {}

  /// One share per shard; 0 for those that are not to be asked.
  std::vector<std::uint32_t> divide(std::uint32_t wanted);

  /// What was divided last is to be had whether it is due or not.
  bool forced() const noexcept { return forced_; }

  /// What to say to the shard as `evict_request::seen`.
  std::uint64_t seen(std::size_t shard) const noexcept { return shards_[shard].released; }

  /// To be called when slots that a shard has released have been counted as free or in quarantine, and not before.
  void released(const release_progress& x);
  /// A shard's answer to its share; after the slots that it speaks of.
  void answered(std::size_t shard, const evict_reply& reply);
  void failed(std::size_t shard) { shards_[shard].dry = true; }

  /// What could not be had yet may be had by asking again.
  bool hopeful() const noexcept { return !forced_ || !all_dry(); }

private:
  struct shard_state {
    std::uint64_t released = 0;
    /// As it released slots the last time.
    std::uint64_t keys = 0;
    /// It gave nothing, forced or not as the others are now, and nobody else has given anything since.
    bool dry = false;
  };

  bool all_dry() const noexcept;

  std::vector<shard_state> shards_;
  bool forced_ = false;
};

} // namespace troupe
