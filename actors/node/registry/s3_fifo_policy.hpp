#pragma once

#include "actors/node/registry/ghost_table.hpp"
#include "actors/node/registry/listing_policy.hpp"

#include <memory>

namespace troupe {

/// S3-FIFO (Yang et al., SOSP 2023): what comes in waits in a small queue, a tenth of all, and goes from its end unless
/// it was used more than once there, or was evicted not long ago; then it belongs to the main queue, which gives each
/// of its entries as many rounds as it was used, up to three. 8 bytes an entry, and 2 for a key that is gone.
class s3_fifo_policy final : public listing_policy {
public:
  explicit s3_fifo_policy(key_hash hash);

  std::uint64_t resident_bytes() const noexcept override;

private:
  enum queue : position { small, main, queues };

  /// A tag: how often the entry was used, in two bits, and whether it is one of the main queue.
  static constexpr std::uint32_t most_uses = 3;
  static constexpr std::uint32_t in_main = 4;

  void admit(position at, bool fetched) override;
  void place(position at) override;
  void use(position first, position last, const entry_use& how) override;
  void forget(position at, leave_reason why) override;
  std::size_t next(std::span<entry_index> out) override;

  /// Moves entries on until the one at the end of the queue is to go; true if there is one.
  bool settle(queue of, int& steps);

  key_hash hash_;
  ghost_table ghosts_;
  /// Of all, those that belong to the small queue.
  std::uint64_t in_small_ = 0;
};

std::unique_ptr<eviction_policy> make_s3_fifo_policy(key_hash hash);

} // namespace troupe
