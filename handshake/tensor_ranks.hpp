#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <vector>

namespace troupe::handshake {

/// Ranks that follow each other.
struct rank_range {
  std::uint32_t first = 0;
  std::uint32_t count = 1;

  constexpr bool contains(std::uint32_t x) const noexcept { return first <= x && x - first < count; }

  friend bool operator==(const rank_range&, const rank_range&) = default;
};

/// The tensor parallel ranks of another engine that rank `own` of `own_size` meets, whatever it reads from them.
/// invalid_argument where neither size divides the other, or a number makes no sense.
result<rank_range> ranks_to_meet(std::uint32_t own, std::uint32_t own_size, std::uint32_t other_size);

/// What one engine reads of another one whose tensor parallelism has another size.
struct tensor_layout {
  std::uint32_t local_size = 1;
  std::uint32_t local_rank = 0;
  std::uint32_t remote_size = 1;
  /// KV heads of the model, over all ranks. Where an engine has more ranks than these, some have the same head.
  std::uint32_t total_heads = 1;
  /// The cache has no heads to split, and each rank has all of it.
  bool is_replicated = false;
};

/// Heads that are read of one remote rank, as places in the blocks of both sides.
struct remote_part {
  std::uint32_t rank = 0;
  std::uint32_t remote_head = 0;
  std::uint32_t local_head = 0;
  std::uint32_t heads = 1;

  friend bool operator==(const remote_part&, const remote_part&) = default;
};

struct tensor_ranks {
  /// How many local ranks there are for a remote one; below zero, how many remote ones for a local one.
  std::int32_t ratio = 1;
  /// Whom this rank shakes hands with, in their order: those that it reads from, and those that only want to hear that
  /// it has, so that they free what they hold.
  std::vector<std::uint32_t> meet;
  std::vector<remote_part> read;
  std::vector<std::uint32_t> notify;
  /// How many notes of completion a remote rank gets before it frees a block.
  std::uint32_t notes = 1;

  friend bool operator==(const tensor_ranks&, const tensor_ranks&) = default;
};

/// invalid_argument where neither size divides the other, or a number makes no sense.
result<tensor_ranks> tensor_ranks_of(const tensor_layout& x);

/// Heads of one rank of so many.
constexpr std::uint32_t heads_per_rank(std::uint32_t total_heads, std::uint32_t size) noexcept {
  return total_heads > size ? total_heads / size : 1;
}

} // namespace troupe::handshake
