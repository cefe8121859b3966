#include "actors/node/eviction/ghost_table.hpp"

#include <algorithm>

namespace troupe {

namespace {

constexpr std::uint32_t note_bits = 2;

} // namespace

ghost_table::ghost_table() : sets_(least / set_cells), split_(sets_) {
  cells_.grow_to(sets_);
}

void ghost_table::make_room_for(std::uint64_t keys) {
  if (keys <= room())
    return;
  cells_.grow_to(sets_ + 1);
  cells_[sets_] = cells_[sets_ - split_];
  if (++sets_ == 2 * split_)
    split_ = sets_;
}

std::uint64_t ghost_table::set_of(std::uint64_t hash) const noexcept {
  const auto place = (hash >> 16) & (2 * split_ - 1);
  return place < sets_ ? place : place - split_;
}

std::uint16_t ghost_table::mark_of(std::uint64_t hash) noexcept {
  const auto mark = hash & 0x3fff;
  return static_cast<std::uint16_t>((mark == 0 ? 1 : mark) << note_bits);
}

void ghost_table::remember(std::uint64_t hash, std::uint32_t note) noexcept {
  auto& cells = cells_[set_of(hash)];
  std::copy_backward(cells.begin(), cells.end() - 1, cells.end());
  cells.front() = static_cast<std::uint16_t>(mark_of(hash) | note);
}

std::optional<std::uint32_t> ghost_table::recall(std::uint64_t hash) noexcept {
  auto& cells = cells_[set_of(hash)];
  const auto found = std::ranges::find(cells, mark_of(hash), [](std::uint16_t cell) { return cell & ~(notes - 1); });
  if (found == cells.end())
    return std::nullopt;
  const auto note = *found & (notes - 1);
  std::copy(found + 1, cells.end(), found);
  cells.back() = 0;
  return note;
}

} // namespace troupe
