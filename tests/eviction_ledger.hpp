#pragma once

#include "base/identifiers.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::test {

/// Compares the evictions of shards with the requests of the allocators of a namespace. An evicted key frees a slot on
/// every rank, and ranks become short together: the number evicted is the largest request, not the sum.
///
/// With several shards, ranks that have not received the same notifications may ask different shards for the same
/// slots: each shard knows only its own evictions. So there may be a batch more for every further shard that another
/// rank has asked.
class eviction_ledger {
public:
  eviction_ledger(std::uint32_t ranks, std::uint32_t shards) : others_(std::min(ranks, shards) - 1), ranks_(ranks) {}

  /// A shard is asked for slots. Shards that are asked before all earlier ones have answered have part in one wish.
  void asked(rank_number rank, std::uint32_t wanted) {
    auto& x = ranks_[rank];
    if (x.open++ == 0) {
      x.wanted = 0;
      x.since = x.heard;
    }
    x.wanted += wanted;
    largest_ = std::max(largest_, x.wanted);
  }

  /// A shard has evicted a key with a page on that rank; and the rank's allocator has the slot back.
  void evicted(rank_number rank, std::uint64_t slots = 1) { ranks_[rank].evicted += slots; }
  void heard(rank_number rank, std::uint64_t slots = 1) { ranks_[rank].heard += slots; }

  /// A shard has answered a request, with or without evictions for it. Returns the error, or an empty text.
  std::string answered(rank_number rank, bool any) {
    auto& x = ranks_[rank];
    x.open -= x.open > 0 ? 1 : 0;
    const auto went = x.evicted - x.since;
    const auto most = x.wanted + others_ * largest_;
    if (!any || went <= most)
      return {};
    return "rank " + std::to_string(rank) + " asked for " + std::to_string(x.wanted) + " slots, and " +
           std::to_string(went) + " have been evicted on it since; at most " + std::to_string(most) + " should be";
  }

private:
  struct rank_state {
    std::uint32_t open = 0;
    std::uint64_t wanted = 0;
    /// The value of `heard` when it asked.
    std::uint64_t since = 0;
    std::uint64_t evicted = 0;
    std::uint64_t heard = 0;
  };

  /// Shards that other ranks may have asked at the same time.
  std::uint64_t others_;
  std::uint64_t largest_ = 0;
  std::vector<rank_state> ranks_;
};

} // namespace troupe::test
