#include "actors/node/tables/key_index.hpp"

#include <algorithm>
#include <cassert>
#include <memory>

namespace troupe {

key_index::key_index() : infos_(1), directory_(1, 0) {
  segments_.grow_to(1);
}

void key_index::place(segment& target, slot what) noexcept {
  auto i = what.tag & slot_mask;
  while (target[i].entry_plus_one != 0)
    i = (i + 1) & slot_mask;
  target[i] = what;
}

bool key_index::insert(std::uint32_t tag, entry_index entry) {
  for (;;) {
    const auto number = segment_number(tag);
    auto& info = infos_[number];
    // One slot always stays empty: it ends the search for a tag that is not present.
    if (info.used < split_above || (info.depth == max_depth && info.used < segment_slots - 1)) {
      place(segments_[number], {tag, entry + 1});
      ++info.used;
      ++size_;
      return true;
    }
    if (info.depth == max_depth)
      return false;
    split(tag);
  }
}

void key_index::split(std::uint32_t tag) {
  const auto number = segment_number(tag);
  const auto old_depth = infos_[number].depth;
  if (old_depth == depth_) {
    std::vector<std::uint32_t> twice(directory_.size() * 2);
    for (std::size_t i = 0; i < twice.size(); ++i)
      twice[i] = directory_[i / 2];
    directory_.swap(twice);
    ++depth_;
  }
  const auto added = static_cast<std::uint32_t>(infos_.size());
  segments_.grow_to(infos_.size() + 1);
  infos_.push_back({0, old_depth + 1});
  infos_[number] = {0, old_depth + 1};

  const auto span = std::size_t{1} << (depth_ - old_depth);
  const auto first = static_cast<std::size_t>(std::uint64_t{tag} >> (32 - old_depth)) * span;
  std::fill_n(directory_.begin() + static_cast<std::ptrdiff_t>(first + span / 2), span / 2, added);

  const auto before = std::make_unique<segment>(segments_[number]);
  segments_[number].fill({0, 0});
  const auto deciding_bit = std::uint32_t{1} << (31 - old_depth);
  for (const auto& s : *before) {
    if (s.entry_plus_one == 0)
      continue;
    const auto target = (s.tag & deciding_bit) != 0 ? added : number;
    place(segments_[target], s);
    ++infos_[target].used;
  }
}

void key_index::erase(std::uint32_t tag, entry_index entry) {
  const auto number = segment_number(tag);
  auto& slots = segments_[number];
  auto hole = tag & slot_mask;
  while (slots[hole].entry_plus_one != entry + 1) {
    assert(slots[hole].entry_plus_one != 0);
    hole = (hole + 1) & slot_mask;
  }
  for (auto i = (hole + 1) & slot_mask; slots[i].entry_plus_one != 0; i = (i + 1) & slot_mask) {
    const auto home = slots[i].tag & slot_mask;
    // A slot may fill the hole only if the hole lies between its home and its place.
    if (((i - home) & slot_mask) >= ((i - hole) & slot_mask)) {
      slots[hole] = slots[i];
      hole = i;
    }
  }
  slots[hole] = {0, 0};
  --infos_[number].used;
  --size_;
}

std::uint64_t key_index::resident_bytes() const noexcept {
  return segments_.resident_bytes() + infos_.capacity() * sizeof(segment_info) +
         directory_.capacity() * sizeof(std::uint32_t);
}

} // namespace troupe
