#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <vector>

namespace troupe::handshake {

/// A range of consecutive ranks.
struct rank_range {
  std::uint32_t first = 0;
  std::uint32_t count = 1;

  constexpr bool contains(std::uint32_t x) const noexcept { return first <= x && x - first < count; }

  friend bool operator==(const rank_range&, const rank_range&) = default;
};

/// The tensor parallel ranks of another engine that rank `own` of `own_size` exchanges data with. invalid_argument if
/// neither size divides the other, or a number is invalid.
result<rank_range> ranks_to_meet(std::uint32_t own, std::uint32_t own_size, std::uint32_t other_size);

/// The parameters for reading from an engine with another tensor parallel size.
struct tensor_layout {
  std::uint32_t local_size = 1;
  std::uint32_t local_rank = 0;
  std::uint32_t remote_size = 1;
  /// KV heads of the model, over all ranks. If an engine has more ranks than heads, some ranks have the same head.
  std::uint32_t total_heads = 1;
  /// The cache has no heads to split, and each rank has all of it.
  bool is_replicated = false;
};

/// Heads that are read from one remote rank, as positions in the blocks of both sides.
struct remote_part {
  std::uint32_t rank = 0;
  std::uint32_t remote_head = 0;
  std::uint32_t local_head = 0;
  std::uint32_t heads = 1;

  friend bool operator==(const remote_part&, const remote_part&) = default;
};

struct tensor_ranks {
  /// The number of local ranks per remote one; if negative, of remote ranks per local one.
  std::int32_t ratio = 1;
  /// The peers of this rank for a handshake, in order: those that it reads from, and those that only need its
  /// notification of completion, so that they free their blocks.
  std::vector<std::uint32_t> meet;
  std::vector<remote_part> read;
  std::vector<std::uint32_t> notify;
  /// The number of notifications of completion that a remote rank receives before it frees a block.
  std::uint32_t notes = 1;

  friend bool operator==(const tensor_ranks&, const tensor_ranks&) = default;
};

/// invalid_argument if neither size divides the other, or a number is invalid.
result<tensor_ranks> tensor_ranks_of(const tensor_layout& x);

/// The number of heads of one rank.
constexpr std::uint32_t heads_per_rank(std::uint32_t total_heads, std::uint32_t size) noexcept {
  return total_heads > size ? total_heads / size : 1;
}

} // namespace troupe::handshake
