#include "gpu/cuda/page_parts.hpp"

#include <algorithm>

namespace troupe::cuda {

namespace {

/// The size of the first gather: its copy over PCIe takes longer than the kernel of a whole part.
constexpr std::uint64_t first_gathered_bytes = std::uint64_t{3} << 20U;

/// The size of the last copy of a scatter: during the copy the kernels of the previous part run, and during its own
/// kernel another one fetches the rest.
constexpr std::uint64_t last_copied_bytes = std::uint64_t{3} << 20U;
constexpr std::uint64_t last_fetched_bytes = std::uint64_t{1} << 20U;

/// With this many bytes ahead, the overhead of a call is hidden by the copies of others.
constexpr std::uint64_t hiding_bytes = std::uint64_t{4} << 20U;

/// In that case lists of at most this size are one part. Each part costs some microseconds of PCIe time while both
/// directions are busy.
constexpr std::uint64_t longest_whole_bytes = std::uint64_t{16} << 20U;

/// A single page above that size is fetched by a kernel as well, up to this size.
constexpr std::uint64_t largest_fetched_page = std::uint64_t{4} << 20U;

/// The largest gap between two pages that is copied with them: copying so many bytes takes as long as beginning another
/// copy. With other calls ahead no gap is copied, since the time would be taken from them.
constexpr std::uint64_t widest_gap = 16384;

bool holds(const locked_range& range, const block_move& move) noexcept {
  return move.page >= range.host && move.page + move.stored_bytes() <= range.host + range.bytes;
}

} // namespace

std::vector<page_place> locate_pages(std::span<const block_move> moves, std::span<const locked_range> locked) {
  std::vector<page_place> out;
  out.reserve(moves.size());
  const locked_range* last = nullptr;
  for (const auto& move : moves) {
    if (last == nullptr || !holds(*last, move)) {
      const auto behind = std::ranges::upper_bound(locked, move.page, {}, &locked_range::host);
      last = behind != locked.begin() && holds(*(behind - 1), move) ? &*(behind - 1) : nullptr;
    }
    out.push_back(last != nullptr ? page_place{last->device + (move.page - last->host), last} : page_place{});
  }
  return out;
}

part_cutter::part_cutter(move_direction direction, const part_limits& limits, const page_list& pages)
    : direction_(direction), limits_(limits), pages_(pages) {
  const auto& moves = pages.moves;
  const auto bytes = moves.size() * limits.page_bytes;
  all_direct_ = bytes <= limits.direct_bytes && reachable(0, moves.size());
  hidden_ = limits.bytes_ahead >= hiding_bytes;
  whole_ = hidden_ && bytes <= longest_whole_bytes;
  if (direction == move_direction::scatter && limits.bytes_ahead == 0 && !all_direct_ &&
      limits.page_bytes <= largest_fetched_page) {
    const auto wanted = std::min(moves.size(), std::max<std::size_t>(1, pages_in(last_fetched_bytes)));
    if (reachable(moves.size() - wanted, wanted))
      fetched_ = wanted;
  }
}

bool part_cutter::reachable(std::size_t first, std::size_t pages) const noexcept {
  if (limits_.page_bytes % io::checksum_word_bytes != 0)
    return false;
  const auto places = pages_.places.subspan(first, pages);
  return std::all_of(places.begin(), places.end(), [](const page_place& place) {
    return place.device != nullptr && reinterpret_cast<std::uintptr_t>(place.device) % io::checksum_word_bytes == 0;
  });
}

page_part part_cutter::next() {
  const auto all = limits_.staging_bytes;
  if (all_direct_)
    return take(left(), all, true);
  if (whole_)
    return take(left(), all, false);
  if (direction_ == move_direction::gather)
    return take(left(), next_ == 0 ? first_gathered_bytes : all, false);
  if (left() <= fetched_)
    return take(left(), all, true);
  const auto copied = left() - fetched_;
  const auto last = std::max<std::size_t>(1, pages_in(last_copied_bytes));
  return take(copied > last ? copied - last : copied, all, false);
}

bool part_cutter::follows(std::size_t at) const noexcept {
  if (limits_.apart)
    return false;
  const auto& places = pages_.places;
  const auto& a = pages_.moves[at - 1];
  const auto& b = pages_.moves[at];
  const auto* end = a.page + a.page_bytes;
  if (b.page < end || static_cast<std::uint64_t>(b.page - end) > (hidden_ ? 0 : widest_gap) ||
      static_cast<std::uint64_t>(b.page - a.page) % io::checksum_word_bytes != 0)
    return false;
  const auto gap = static_cast<std::uint64_t>(b.page - end);
  // A gather overwrites the gap, so it must be spare. A scatter reads it, so it must be in the same locked range.
  return gap == 0 || (direction_ == move_direction::gather
                          ? gap <= a.spare_behind + b.spare_before
                          : places[at].range != nullptr && places[at].range == places[at - 1].range);
}

page_part part_cutter::take(std::size_t pages, std::uint64_t bytes, bool direct) {
  page_part out;
  out.first = next_;
  out.direct = direct;
  const auto most = std::min(pages, limits_.pages);
  out.offsets.reserve(std::min(most, pages_in(bytes) + 1));
  out.joined.reserve(std::min(most, pages_in(bytes) + 1));
  bytes = std::min(bytes, limits_.staging_bytes);
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < most; ++i) {
    auto offset = staged_bytes(end);
    const bool joined = i > 0 && follows(next_ + i);
    if (joined)
      offset = out.offsets.back() +
               static_cast<std::uint64_t>(pages_.moves[next_ + i].page - pages_.moves[next_ + i - 1].page);
    if (i > 0 &&
        (offset + limits_.page_bytes > bytes || offset + staged_bytes(limits_.page_bytes) > limits_.staging_bytes))
      break;
    out.offsets.push_back(offset);
    out.joined.push_back(joined);
    end = offset + limits_.page_bytes;
  }
  out.pages = out.offsets.size();
  next_ += out.pages;
  return out;
}

} // namespace troupe::cuda
