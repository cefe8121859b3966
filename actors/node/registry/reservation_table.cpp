#include "actors/node/registry/reservation_table.hpp"

#include <algorithm>
#include <cassert>

namespace troupe {

std::optional<reservation_number> reservation_table::find(const reservation_name& name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    return std::nullopt;
  return found->second;
}

reservation_number reservation_table::open(const reservation_name& name, duration lasts) {
  assert(!find(name));
  auto number = static_cast<reservation_number>(reservations_.size());
  if (free_.empty()) {
    reservations_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  auto& r = reservations_[number];
  r.name = name;
  r.lasts = lasts;
  r.deadline = timestamp::max();
  r.state = reservation::phase::awaiting_slots;
  r.doomed = false;
  ++r.incarnation;
  if (!r.shareable()) {
    by_name_.emplace(name, number);
    owners_.add(name.ticket.owner, number);
  }
  if (name.ns >= in_namespace_.size())
    in_namespace_.resize(std::size_t{name.ns} + 1, 0);
  ++in_namespace_[name.ns];
  return number;
}

void reservation_table::drop(reservation_number number) {
  auto& r = reservations_[number];
  assert(is_live(r));
  if (!r.shareable()) {
    remember(r.name);
    by_name_.erase(r.name);
    owners_.remove(r.name.ticket.owner, number);
  }
  deadlines_.erase(number);
  r.state = reservation::phase::dropped;
}

void reservation_table::remember(const reservation_name& name) {
  if (!ended_.insert(name).second)
    return;
  if (ended_order_.size() < remembered_names) {
    ended_order_.push_back(name);
    return;
  }
  ended_.erase(ended_order_[oldest_ended_]);
  ended_order_[oldest_ended_] = name;
  oldest_ended_ = (oldest_ended_ + 1) % remembered_names;
}

void reservation_table::close(reservation_number number) {
  auto& r = reservations_[number];
  assert(r.open_pages == 0);
  if (r.state != reservation::phase::dropped)
    drop(number);
  --in_namespace_[r.name.ns];
  r.answers.clear();
  r.pages.clear();
  r.known.clear();
  r.repeated.clear();
  r.state = reservation::phase::closed;
  free_.push_back(number);
}

void reservation_table::set_deadline(reservation_number number, timestamp deadline) {
  reservations_[number].deadline = deadline;
  deadlines_.set(number, deadline);
}

void reservation_table::set_page_deadline(reserved_page_number page, timestamp deadline) {
  assert(of_page(page).shareable());
  pages_[page].deadline = deadline;
  page_deadlines_.set(page, deadline);
}

reserved_page_number reservation_table::add_page(reservation_number number, entry_index entry, std::uint32_t answer) {
  auto added = static_cast<reserved_page_number>(pages_.size());
  if (free_pages_.empty()) {
    pages_.emplace_back();
  } else {
    added = free_pages_.back();
    free_pages_.pop_back();
  }
  auto& r = reservations_[number];
  auto& page = pages_[added];
  page.entry = entry;
  page.by = number;
  page.answer = answer;
  page.place = static_cast<std::uint32_t>(r.pages.size()) & 0x7fffffffU;
  r.pages.push_back(added);
  ++r.open_pages;
  return added;
}

void reservation_table::remove_page(reserved_page_number number) {
  auto& page = pages_[number];
  auto& r = reservations_[page.by];
  assert(page.entry != no_entry && r.pages[page.place] == number && r.open_pages > 0);
  r.pages[page.place] = no_reserved_page;
  --r.open_pages;
  if (r.shareable())
    page_deadlines_.erase(number);
  page = {};
  free_pages_.push_back(number);
}

std::optional<timestamp> reservation_table::next_deadline() const {
  const auto together = deadlines_.next();
  const auto alone = page_deadlines_.next();
  return together && alone ? std::min(*together, *alone) : together ? together : alone;
}

void reservation_table::doom_one(reservation_number number) {
  reservations_[number].doomed = true;
  set_deadline(number, timestamp::min());
}

void reservation_table::doom(owner_id owner) {
  for (auto number = owners_.first(owner); number != owner_index::none; number = owners_.next(number))
    doom_one(number);
}

void reservation_table::doom_namespace(std::uint32_t ns) {
  for (reservation_number i = 0; i < reservations_.size(); ++i)
    if (is_live(reservations_[i]) && reservations_[i].name.ns == ns)
      doom_one(i);
}

std::uint64_t reservation_table::plan_id(reservation_number number) const noexcept {
  return (std::uint64_t{reservations_[number].incarnation} << 32U) | number;
}

std::optional<reservation_number> reservation_table::find_plan(std::uint64_t plan) const noexcept {
  const auto number = static_cast<reservation_number>(plan & 0xffffffff);
  if (number >= reservations_.size() || plan_id(number) != plan)
    return std::nullopt;
  const auto state = reservations_[number].state;
  if (state != reservation::phase::awaiting_slots && state != reservation::phase::dropped)
    return std::nullopt;
  return number;
}

std::uint64_t reservation_table::resident_bytes() const noexcept {
  std::uint64_t bytes = reservations_.capacity() * sizeof(reservation) + free_.capacity() * sizeof(reservation_number) +
                        pages_.capacity() * sizeof(reserved_page) +
                        free_pages_.capacity() * sizeof(reserved_page_number) +
                        by_name_.size() * (sizeof(std::pair<reservation_name, reservation_number>) + 16) +
                        by_name_.bucket_count() * sizeof(void*);
  for (const auto& r : reservations_)
    bytes += r.answers.capacity() * sizeof(location) + r.pages.capacity() * sizeof(reserved_page_number) +
             r.known.capacity() * sizeof(reservation::known_page) +
             r.repeated.capacity() * sizeof(reservation::repeated_key);
  bytes += ended_order_.capacity() * sizeof(reservation_name) +
           ended_.size() * (sizeof(reservation_name) + 2 * sizeof(void*)) + ended_.bucket_count() * sizeof(void*);
  return bytes + owners_.resident_bytes() + deadlines_.resident_bytes() + page_deadlines_.resident_bytes();
}

} // namespace troupe
