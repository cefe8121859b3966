#include "connector/scheduler/doubtful_blocks.hpp"

#include "base/identifiers.hpp"

#include <algorithm>
#include <utility>

namespace troupe::connector {

void doubtful_blocks::load_begins(std::span<const block_id> blocks) {
  ++under_way_;
  open_.insert(blocks.begin(), blocks.end());
  open_.erase(null_block);
  // Their earlier content is overwritten.
  for (const auto x : blocks)
    bad_.erase(x);
}

std::size_t doubtful_blocks::run(std::span<const block_id> blocks, std::size_t read, std::size_t written) {
  const auto in_doubt = [this](block_id x) { return contains(x); };
  const auto begin = blocks.begin();
  const auto read_end = begin + static_cast<std::ptrdiff_t>(std::min(read, blocks.size()));
  const auto written_end = begin + static_cast<std::ptrdiff_t>(std::min(std::max(read, written), blocks.size()));
  const auto first = std::find_if(begin, read_end, in_doubt);
  if (first == read_end) {
    for (auto i = read_end; i != written_end; ++i) {
      open_.erase(*i);
      bad_.erase(*i);
    }
    return blocks.size();
  }
  // While loads are in progress these blocks may turn out to be right.
  auto& spoilt = under_way_ > 0 ? open_ : bad_;
  spoilt.insert(first, blocks.end());
  spoilt.erase(null_block);
  return static_cast<std::size_t>(first - begin);
}

void doubtful_blocks::load_ended(std::span<const block_id> blocks, std::size_t first,
                                 std::optional<std::size_t> failed) {
  first = std::min(first, blocks.size());
  const auto end = failed ? std::clamp(*failed, first, blocks.size()) : blocks.size();
  const auto before = blocks.first(first);
  if (std::none_of(before.begin(), before.end(), [this](block_id x) { return contains(x); }))
    for (const auto x : blocks.subspan(first, end - first))
      open_.erase(x);
  one_failed_ = one_failed_ || failed.has_value();
  if (--under_way_ > 0)
    return;
  if (std::exchange(one_failed_, false))
    bad_.insert(open_.begin(), open_.end());
  open_.clear();
}

} // namespace troupe::connector
