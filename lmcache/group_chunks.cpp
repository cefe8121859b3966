#include "lmcache/group_chunks.hpp"

#include <algorithm>

namespace troupe::lmcache {

namespace {

using chunk_run = transfer_rules::chunk_run;

void append(std::deque<chunk_run>& out, std::uint32_t group, std::uint32_t chunk) {
  if (!out.empty() && out.back().group == group && out.back().first + out.back().count == chunk)
    ++out.back().count;
  else
    out.push_back({chunk, 1, group});
}

} // namespace

std::uint32_t first_needed(const group_needs& group, std::uint32_t begin, std::uint32_t hit) noexcept {
  if (group.window_chunks == 0 || hit < group.window_chunks)
    return std::min(begin, hit);
  return std::min(std::max(begin, hit - group.window_chunks), hit);
}

std::uint32_t longest_hit(std::span<const group_needs> groups, const chunk_marks& found, std::uint32_t begin) {
  if (groups.empty() || groups.size() != found.size())
    return begin;
  std::size_t chunks = found.front().size();
  for (const auto& marks : found)
    chunks = std::min(chunks, marks.size());
  // For each group: how many chunks that were found end with the current one.
  std::vector<std::uint32_t> runs(groups.size(), 0);
  auto out = begin;
  for (std::size_t i = 0; i < chunks; ++i) {
    const auto hit = begin + static_cast<std::uint32_t>(i) + 1;
    bool whole = true;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      runs[g] = found[g][i] != 0 ? runs[g] + 1 : 0;
      whole = whole && runs[g] >= hit - first_needed(groups[g], begin, hit);
    }
    if (whole)
      out = hit;
  }
  return out;
}

std::vector<std::uint32_t> chunks_missing(const group_needs& group, std::span<const std::uint8_t> found,
                                          std::uint32_t begin, std::uint32_t hit) {
  std::vector<std::uint32_t> out;
  // What the next longer hit needs comes first; later ones need later chunks.
  for (auto i = first_needed(group, begin, hit + 1) - begin; i < found.size(); ++i)
    if (found[i] == 0)
      out.push_back(begin + i);
  return out;
}

std::deque<chunk_run> chunks_to_store(std::span<const group_needs> groups, const group_store& x) {
  std::deque<chunk_run> out;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    const auto skipped = x.skipped.empty() ? std::span<const std::uint32_t>{} : std::span(x.skipped[g]);
    const auto is_skipped = [&](std::uint32_t chunk) { return std::ranges::binary_search(skipped, chunk); };
    const bool is_full = groups[g].window_chunks == 0;
    for (std::uint32_t i = 0; i < x.end - x.begin; ++i) {
      if (is_skipped(i) && is_full)
        break; // such a group has all blocks, or is not what it says
      const bool is_whole =
          is_full || groups[g].recurrent || (i > 0 && !is_skipped(i - 1)) || (x.computed && x.begin + i >= *x.computed);
      if (is_whole && !is_skipped(i))
        append(out, g, i);
    }
  }
  return out;
}

std::deque<chunk_run> chunks_to_load(std::span<const group_needs> groups, std::uint32_t count) {
  std::deque<chunk_run> out;
  for (std::uint32_t g = 0; g < groups.size(); ++g)
    if (const auto first = first_needed(groups[g], 0, count); first < count)
      out.push_back({first, count - first, g});
  return out;
}

} // namespace troupe::lmcache
