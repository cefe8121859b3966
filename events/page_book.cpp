#include "events/page_book.hpp"

#include <algorithm>
#include <utility>

namespace troupe::events {

namespace {

__extension__ using wide = unsigned __int128;

/// Memory of details besides their bytes: the text, and what the allocator adds.
constexpr std::uint64_t details_overhead = 48;

/// The index is at least this full before it grows, and grows by a quarter: so it takes less than 6 bytes a page.
constexpr std::size_t places_least = 1024;

} // namespace

page_book::page_book(std::uint64_t seed, std::uint64_t details_max)
    : seed_hi_(mix(seed, 3) | 1U), seed_lo_(mix(seed, 4)), details_max_(details_max), places_(places_least, 0) {}

std::uint64_t page_book::id_of(const namespace_id& ns, const key_digest& key) const noexcept {
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    const auto product = wide{a} * b;
    return static_cast<std::uint64_t>(product >> 64U) ^ static_cast<std::uint64_t>(product);
  };
  const auto id = fold(key.hi ^ seed_hi_, key.lo ^ seed_lo_) ^ fold(ns.hi ^ seed_lo_, ns.lo ^ seed_hi_);
  return id == 0 ? 1 : id;
}

std::optional<std::uint16_t> page_book::number_of(const page_shape& shape) {
  if (const auto found = shape_numbers_.find(shape); found != shape_numbers_.end())
    return found->second;
  if (unused_shapes_.empty()) {
    if (shapes_.size() == shapes_max)
      return std::nullopt;
    unused_shapes_.push_back(static_cast<std::uint16_t>(shapes_.size()));
    shapes_.emplace_back();
    shape_pages_.push_back(0);
  }
  const auto number = unused_shapes_.back();
  unused_shapes_.pop_back();
  shapes_[number] = std::make_unique<page_shape>(shape);
  shape_numbers_.emplace(shape, number);
  return number;
}

bool page_book::forget_unused_shapes() {
  std::erase_if(shape_numbers_, [this](const auto& x) {
    const auto number = x.second;
    if (shape_pages_[number] != 0)
      return false;
    unused_shapes_.push_back(number);
    return true;
  });
  return !unused_shapes_.empty();
}

std::size_t page_book::place_of(std::uint64_t id) const noexcept {
  return static_cast<std::size_t>((wide{id} * places_.size()) >> 64U);
}

std::uint32_t page_book::find_entry(std::uint64_t id) const noexcept {
  for (auto at = place_of(id); places_[at] != 0; at = at + 1 == places_.size() ? 0 : at + 1)
    if (entry(places_[at] - 1).id == id)
      return places_[at] - 1;
  return none;
}

void page_book::index(std::uint32_t i) noexcept {
  auto at = place_of(entry(i).id);
  while (places_[at] != 0)
    at = at + 1 == places_.size() ? 0 : at + 1;
  places_[at] = i + 1;
}

void page_book::unindex(std::uint64_t id) noexcept {
  const auto size = places_.size();
  const auto next = [&](std::size_t at) { return at + 1 == size ? 0 : at + 1; };
  auto hole = place_of(id);
  while (entry(places_[hole] - 1).id != id)
    hole = next(hole);
  // Later entries of the run move up, unless that would place one before its own place.
  for (auto at = next(hole); places_[at] != 0; at = next(at)) {
    const auto own = place_of(entry(places_[at] - 1).id);
    const auto from_own = (at + size - own) % size;
    const auto from_hole = (at + size - hole) % size;
    if (from_own < from_hole)
      continue;
    places_[hole] = places_[at];
    hole = at;
  }
  places_[hole] = 0;
}

void page_book::grow_index() {
  places_.assign(places_.size() + places_.size() / 4, 0);
  for (std::uint32_t i = 0; i < end_; ++i)
    if (entry(i).id != 0)
      index(i);
}

void page_book::keep_details(book_entry& e, const page_record& page) {
  const auto& form = shape(e.shape);
  const auto hashes = hash_bytes_of(form);
  const bool fits = details_bytes_ + page.details.size() + details_overhead <= details_max_;
  // A removal has to name all hashes, whatever the limit.
  const auto kept = fits ? page.details.size() : hashes;
  if (kept == hashes)
    ++without_tokens_;
  if (kept == 0)
    return;
  if (unused_details_.empty()) {
    unused_details_.push_back(static_cast<std::uint32_t>(details_.size()));
    details_.emplace_back();
  }
  const auto number = unused_details_.back();
  unused_details_.pop_back();
  details_[number] = page.details.substr(0, kept);
  details_bytes_ += kept + details_overhead;
  e.details = number + 1;
}

void page_book::drop_details(book_entry& e) {
  const auto kept = e.details == 0 ? 0 : details_[e.details - 1].size();
  if (kept == hash_bytes_of(shape(e.shape)))
    --without_tokens_;
  if (e.details == 0)
    return;
  details_bytes_ -= kept + details_overhead;
  std::string().swap(details_[e.details - 1]);
  unused_details_.push_back(e.details - 1);
  e.details = 0;
}

page_record page_book::record_of(const book_entry& e) const {
  return {e.id,
          e.hash,
          e.parent,
          e.shape,
          e.has_parent,
          e.in_memory,
          e.details == 0 ? std::string() : details_[e.details - 1]};
}

page_book::outcome page_book::store(const page_record& page) {
  if (const auto known = find_entry(page.id); known != none) {
    auto& e = entry(known);
    if (e.hash != page.hash || e.shape != page.shape)
      return outcome::differs;
    if (!has_tokens(record_of(e), shape(e.shape))) {
      drop_details(e);
      keep_details(e, page);
      return has_tokens(record_of(e), shape(e.shape)) ? outcome::completed : outcome::known;
    }
    return outcome::known;
  }
  if (pages_ >= none - 1)
    return outcome::full;
  auto at = unused_;
  if (at == none) {
    at = end_;
    if (at / chunk_entries == chunks_.size())
      chunks_.push_back(std::make_unique<book_entry[]>(chunk_entries));
    ++end_;
  } else {
    unused_ = static_cast<std::uint32_t>(entry(at).hash);
  }
  auto& e = entry(at);
  e = {page.id, page.hash, page.parent, 0, page.shape, page.has_parent, page.in_memory};
  keep_details(e, page);
  ++pages_;
  ++shape_pages_[e.shape];
  if (pages_ * 8 > places_.size() * 7)
    grow_index();
  else
    index(at);
  return outcome::stored;
}

std::optional<page_record> page_book::remove(std::uint64_t id) {
  const auto found = find_entry(id);
  if (found == none)
    return std::nullopt;
  auto& e = entry(found);
  auto out = record_of(e);
  out.details.resize(hash_bytes_of(shape(e.shape)));
  unindex(id);
  drop_details(e);
  --shape_pages_[e.shape];
  e = {};
  e.hash = unused_;
  unused_ = found;
  --pages_;
  return out;
}

std::optional<page_record> page_book::move(std::uint64_t id, bool in_memory) {
  const auto found = find_entry(id);
  if (found == none || entry(found).in_memory == in_memory)
    return std::nullopt;
  entry(found).in_memory = in_memory;
  return record_of(entry(found));
}

std::optional<page_record> page_book::find(std::uint64_t id) const {
  const auto found = find_entry(id);
  return found == none ? std::nullopt : std::optional(record_of(entry(found)));
}

void page_book::clear() {
  chunks_.clear();
  places_.assign(places_least, 0);
  details_.clear();
  unused_details_.clear();
  end_ = 0;
  unused_ = none;
  std::ranges::fill(shape_pages_, 0U);
  pages_ = details_bytes_ = without_tokens_ = 0;
}

std::uint64_t page_book::resident_bytes() const noexcept {
  return chunks_.size() * chunk_entries * sizeof(book_entry) + places_.capacity() * sizeof(std::uint32_t) +
         details_bytes_;
}

} // namespace troupe::events
