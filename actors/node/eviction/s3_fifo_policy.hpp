#pragma once

#include "actors/node/eviction/ghost_table.hpp"
#include "actors/node/eviction/listing_policy.hpp"

#include <memory>

namespace troupe {

/// S3-FIFO (Yang et al., SOSP 2023). New entries wait in a small queue, a tenth of all. At its end an entry is evicted,
/// unless it was used more than once there or was evicted recently; then it moves to the main queue. The main queue
/// gives each entry as many rounds as it had uses, up to three. 8 bytes per entry, and 2 per evicted key.
class s3_fifo_policy final : public listing_policy {
public:
  explicit s3_fifo_policy(key_hash hash);

  std::uint64_t resident_bytes() const noexcept override;

private:
  enum queue : position { small, main, queues };

  /// A tag: two bits for how often the entry was used, and one for whether it is in the main queue.
  static constexpr std::uint32_t most_uses = 3;
  static constexpr std::uint32_t in_main = 4;

  void admit(position at, bool fetched) override;
  void place(position at) override;
  void use(position first, position last, const entry_use& how) override;
  void forget(position at, leave_reason why) override;
  std::size_t next(std::span<entry_index> out) override;

  /// Advances entries until the one at the end of the queue is to be evicted; true if there is one.
  bool settle(queue of, int& steps);

  key_hash hash_;
  ghost_table ghosts_;
  /// How many of all entries belong to the small queue.
  std::uint64_t in_small_ = 0;
};

std::unique_ptr<eviction_policy> make_s3_fifo_policy(key_hash hash);

} // namespace troupe
