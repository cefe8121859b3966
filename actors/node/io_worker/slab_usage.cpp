#include "actors/node/io_worker/slab_usage.hpp"

#include <algorithm>
#include <string>

namespace troupe {

namespace {

/// The margin for pages that are not encoded: one part in so many of what was granted.
constexpr std::uint64_t margin_part = 256;

} // namespace

slab_usage::slab_usage(const options& x) : options_(x), slots_(x.encoded_bytes > 0 ? x.slots : 0) {
  static_assert(sizeof(slot_state) == bytes_per_slot);
}

std::uint64_t slab_usage::bytes_of(extent x) const noexcept {
  switch (x) {
  case extent::none:
    return 0;
  case extent::encoded:
    return options_.encoded_bytes;
  case extent::whole:
    return options_.whole_bytes;
  }
  return options_.whole_bytes;
}

void slab_usage::set_occupied(slot_state& s, extent x) noexcept {
  occupied_bytes_ += bytes_of(x) - bytes_of(s.occupied);
  s.occupied = x;
}

void slab_usage::set_page(slot_state& s, extent x) noexcept {
  pages_ += static_cast<std::uint64_t>(x != extent::none) - static_cast<std::uint64_t>(s.page != extent::none);
  encoded_pages_ +=
      static_cast<std::uint64_t>(x == extent::encoded) - static_cast<std::uint64_t>(s.page == extent::encoded);
  s.page = x;
}

void slab_usage::found(std::span<const std::uint64_t> occupied, bool pages) {
  room_is_known_ = !pages;
  for (slot_number slot = 0; slot < std::min(occupied.size(), slots_.size()); ++slot) {
    const auto bytes = occupied[slot];
    auto x = extent::none;
    if (bytes > 0)
      x = bytes <= options_.encoded_bytes ? extent::encoded : extent::whole;
    set_occupied(slots_[slot], x);
    slots_[slot].end_is_trimmed = x != extent::whole;
    if (pages)
      set_page(slots_[slot], x);
    else
      vacate(slot);
  }
}

void slab_usage::grant(std::uint64_t pages, std::span<const io::slot_range> given) {
  granted_ = pages;
  changed_ = true;
  for (const auto& x : given)
    for (auto slot = x.first; slot < std::min<std::uint64_t>(x.end, slots_.size()); ++slot) {
      auto& s = slots_[slot];
      set_occupied(s, extent::whole);
      s.end_is_trimmed = false;
      list_free(static_cast<slot_number>(slot));
    }
}

void slab_usage::assign(slot_number slot, frame_size size) {
  if (slot >= slots_.size())
    return;
  set_page(slots_[slot], size == frame_size::encoded ? extent::encoded : extent::whole);
  usual_ = size;
}

void slab_usage::vacate(slot_number slot) {
  if (slot >= slots_.size())
    return;
  set_page(slots_[slot], extent::none);
  list_free(slot);
}

void slab_usage::list_free(slot_number slot) {
  auto& s = slots_[slot];
  if (s.page != extent::none || s.occupied == extent::none || s.listed)
    return;
  s.listed = true;
  free_.push_back(slot);
}

bool slab_usage::begin_write(slot_number slot) {
  if (slot >= slots_.size())
    return true;
  auto& s = slots_[slot];
  if (s.trimming)
    return false;
  if (bytes_of(s.page) > bytes_of(s.occupied)) {
    const auto more = bytes_of(s.page) - bytes_of(s.occupied);
    if (occupied_bytes_ + more > granted_bytes()) {
      refused_bytes_ += more;
      return false;
    }
    set_occupied(s, s.page);
  }
  if (s.page == extent::whole)
    s.end_is_trimmed = false;
  s.writing = true;
  return true;
}

bool slab_usage::take_change() noexcept {
  if (!std::exchange(changed_, false))
    return false;
  refused_bytes_ = 0;
  return true;
}

std::optional<std::uint32_t> slab_usage::take_changed_room() {
  if (!enabled() || !room_is_known_ || room() == reported_room_)
    return std::nullopt;
  reported_room_ = room();
  return reported_room_;
}

std::uint64_t slab_usage::lacking_bytes() const noexcept {
  const auto wanted = refused_bytes_ == 0 ? 0 : occupied_bytes_ + refused_bytes_;
  return wanted - std::min(wanted, granted_bytes());
}

void slab_usage::end_write(slot_number slot) {
  if (slot >= slots_.size())
    return;
  auto& s = slots_[slot];
  s.writing = false;
  if (may_trim_end(s))
    ends_.push_back(slot);
}

bool slab_usage::may_trim_end(const slot_state& s) noexcept {
  return s.page == extent::encoded && !s.end_is_trimmed && !s.writing && !s.trimming;
}

slab_usage::trim slab_usage::begin(std::uint64_t tag, slot_number slot, extent left) {
  auto& s = slots_[slot];
  s.trimming = true;
  trims_[tag] = {slot, left};
  const auto from = bytes_of(left);
  if (left == extent::none)
    coming_bytes_ += bytes_of(s.occupied);
  return {slot, from, options_.whole_bytes - from};
}

std::optional<slab_usage::trim> slab_usage::next_trim(std::uint64_t tag) {
  if (trims_fail_ || trims_.size() >= options_.trims_max)
    return std::nullopt;
  while (!ends_.empty()) {
    const auto slot = ends_.front();
    ends_.pop_front();
    if (may_trim_end(slots_[slot]))
      return begin(tag, slot, extent::encoded);
  }
  // Free slots keep what they occupy until it is lacking. Those that are written to at present are tried later.
  for (auto left = free_.size(); left > 0 && coming_bytes_ < lacking_bytes(); --left) {
    const auto slot = free_.front();
    free_.pop_front();
    auto& s = slots_[slot];
    if (s.page != extent::none || s.occupied == extent::none) {
      s.listed = false;
    } else if (s.writing || s.trimming) {
      free_.push_back(slot);
    } else {
      s.listed = false;
      return begin(tag, slot, extent::none);
    }
  }
  return std::nullopt;
}

bool slab_usage::end_trim(std::uint64_t tag, bool done) {
  const auto found = trims_.find(tag);
  if (found == trims_.end())
    return false;
  const auto [slot, left] = found->second;
  trims_.erase(found);
  changed_ = true;
  auto& s = slots_[slot];
  s.trimming = false;
  if (left == extent::none)
    coming_bytes_ -= bytes_of(s.occupied);
  if (done) {
    set_occupied(s, left);
    s.end_is_trimmed = true;
    return true;
  }
  trims_fail_ = true;
  list_free(slot);
  if (may_trim_end(s))
    ends_.push_back(slot);
  return true;
}

std::uint32_t slab_usage::room() const noexcept {
  // Encoded pages may be followed by whole ones in their slots.
  const auto growth = encoded_pages_ * (options_.whole_bytes - options_.encoded_bytes);
  const auto needed = page_bytes() + std::min(granted_bytes() / margin_part, growth);
  const auto usual = bytes_of(usual_ == frame_size::encoded ? extent::encoded : extent::whole);
  auto out = pages_;
  if (needed <= granted_bytes())
    out += (granted_bytes() - needed) / usual;
  else
    out -= std::min(out, (needed - granted_bytes() + options_.encoded_bytes - 1) / options_.encoded_bytes);
  return static_cast<std::uint32_t>(
      std::clamp(out, std::min<std::uint64_t>(granted_, slots_.size()), static_cast<std::uint64_t>(slots_.size())));
}

std::string slab_usage::check() const {
  std::uint64_t occupied = 0;
  std::uint64_t needed = 0;
  std::uint64_t pages = 0;
  for (const auto& s : slots_) {
    occupied += bytes_of(s.occupied);
    needed += bytes_of(s.page);
    pages += s.page != extent::none ? 1 : 0;
    if (s.writing && s.trimming)
      return "a slot is written to while it is trimmed";
  }
  if (occupied != occupied_bytes_ || needed != page_bytes() || pages != pages_)
    return "the sums over the slots of the slab are wrong";
  return {};
}

} // namespace troupe
