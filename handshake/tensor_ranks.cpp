#include "handshake/tensor_ranks.hpp"

#include <algorithm>
#include <string>

namespace troupe::handshake {

namespace {

/// The first head of a rank.
std::uint32_t first_head(std::uint32_t rank, std::uint32_t total, std::uint32_t size) {
  return static_cast<std::uint32_t>(std::uint64_t{rank} * total / size);
}

std::uint32_t width_of(const tensor_layout& x, std::uint32_t size) {
  return x.is_replicated ? x.total_heads : heads_per_rank(x.total_heads, size);
}

bool splits(std::uint32_t heads, std::uint32_t size) {
  return heads % size == 0 || size % heads == 0;
}

void plan_reads(const tensor_layout& x, tensor_ranks& out) {
  const auto local_first = first_head(x.local_rank, x.total_heads, x.local_size);
  const auto local_end = local_first + width_of(x, x.local_size);
  // Ranks with the same head are consecutive: the first of them is read.
  auto next = local_first;
  for (const auto rank : out.meet) {
    const auto first = first_head(rank, x.total_heads, x.remote_size);
    const auto end = std::min(first + width_of(x, x.remote_size), local_end);
    if (next < local_end && first <= next && next < end) {
      out.read.push_back({rank, next - first, next - local_first, end - next});
      next = end;
    } else {
      out.notify.push_back(rank);
    }
  }
}

} // namespace

result<rank_range> ranks_to_meet(std::uint32_t own, std::uint32_t own_size, std::uint32_t other_size) {
  if (own_size == 0 || other_size == 0 || own >= own_size)
    return fail(errc::invalid_argument,
                "a rank must be below the size of its engine, and sizes above 0: this is rank " + std::to_string(own) +
                    " of " + std::to_string(own_size) + ", of " + std::to_string(other_size) + " there");
  if (std::max(own_size, other_size) % std::min(own_size, other_size) != 0)
    return fail(errc::invalid_argument, "one tensor parallel size must divide the other: " + std::to_string(own_size) +
                                            " here, " + std::to_string(other_size) + " there");
  if (own_size >= other_size)
    return rank_range{own / (own_size / other_size), 1};
  const auto ratio = other_size / own_size;
  return rank_range{own * ratio, ratio};
}

result<tensor_ranks> tensor_ranks_of(const tensor_layout& x) {
  const auto peers = ranks_to_meet(x.local_rank, x.local_size, x.remote_size);
  if (!peers)
    return tl::unexpected(peers.error());
  if (x.total_heads == 0)
    return fail(errc::invalid_argument, "a model must have at least one head");
  if (!x.is_replicated && !(splits(x.total_heads, x.local_size) && splits(x.total_heads, x.remote_size)))
    return fail(errc::invalid_argument, std::to_string(x.total_heads) + " heads cannot be distributed evenly over " +
                                            std::to_string(x.local_size) + " and " + std::to_string(x.remote_size) +
                                            " ranks");
  tensor_ranks out;
  for (std::uint32_t i = 0; i < peers->count; ++i)
    out.meet.push_back(peers->first + i);
  if (x.local_size >= x.remote_size) {
    out.notes = x.local_size / x.remote_size;
    out.ratio = static_cast<std::int32_t>(out.notes);
  } else {
    out.ratio = -static_cast<std::int32_t>(peers->count);
  }
  if (x.is_replicated) {
    out.read.push_back({out.meet.front(), 0, 0, x.total_heads});
    out.notify.assign(out.meet.begin() + 1, out.meet.end());
  } else {
    plan_reads(x, out);
  }
  return out;
}

} // namespace troupe::handshake
