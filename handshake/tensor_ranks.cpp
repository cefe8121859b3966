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
  // Ranks that have the same head follow each other: the first of them is read.
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

result<tensor_ranks> tensor_ranks_of(const tensor_layout& x) {
  if (x.local_size == 0 || x.remote_size == 0 || x.total_heads == 0 || x.local_rank >= x.local_size)
    return fail(errc::invalid_argument, "a rank of an engine, sizes and heads are numbers that make sense");
  const auto larger = std::max(x.local_size, x.remote_size);
  const auto smaller = std::min(x.local_size, x.remote_size);
  if (larger % smaller != 0)
    return fail(errc::invalid_argument,
                "one tensor parallel size has to divide the other: " + std::to_string(x.local_size) + " here, " +
                    std::to_string(x.remote_size) + " there");
  if (!x.is_replicated && !(splits(x.total_heads, x.local_size) && splits(x.total_heads, x.remote_size)))
    return fail(errc::invalid_argument, std::to_string(x.total_heads) + " heads cannot be spread evenly over " +
                                            std::to_string(x.local_size) + " and " + std::to_string(x.remote_size) +
                                            " ranks");
  const auto ratio = larger / smaller;
  tensor_ranks out;
  if (x.local_size >= x.remote_size) {
    out.ratio = static_cast<std::int32_t>(ratio);
    out.meet.push_back(x.local_rank / ratio);
    out.notes = ratio;
  } else {
    out.ratio = -static_cast<std::int32_t>(ratio);
    for (std::uint32_t i = 0; i < ratio; ++i)
      out.meet.push_back(x.local_rank * ratio + i);
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
