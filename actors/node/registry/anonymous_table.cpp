#include "actors/node/registry/anonymous_table.hpp"

#include <cassert>

namespace troupe {

std::uint64_t& anonymous_table::count_of(std::uint32_t space) {
  if (space >= counts_.size())
    counts_.resize(std::size_t{space} + 1, 0);
  return counts_[space];
}

anonymous_number anonymous_table::add(entry_index entry, std::uint32_t space, rank_number rank, plan_number plan) {
  auto number = static_cast<anonymous_number>(pages_.size());
  if (free_pages_.empty()) {
    pages_.emplace_back();
  } else {
    number = free_pages_.back();
    free_pages_.pop_back();
  }
  auto& page = pages_[number];
  page = {};
  page.entry = entry;
  page.space = space;
  page.rank = rank;
  page.plan = plan;
  ++count_of(space);
  return number;
}

void anonymous_table::remove(anonymous_number page) {
  assert(pages_[page].entry != no_entry);
  deadlines_.erase(page);
  --count_of(pages_[page].space);
  pages_[page] = {};
  free_pages_.push_back(page);
}

void anonymous_table::set_deadline(anonymous_number page, timestamp deadline) {
  pages_[page].deadline = deadline;
  deadlines_.set(page, deadline);
}

void anonymous_table::doom(std::uint32_t space) {
  for (anonymous_number i = 0; i < pages_.size(); ++i)
    if (pages_[i].entry != no_entry && pages_[i].space == space && pages_[i].where.generation != 0)
      set_deadline(i, timestamp::min());
}

anonymous_table::plan_number anonymous_table::open_plan(std::uint32_t space, rank_number rank, duration lasts) {
  auto number = static_cast<plan_number>(plans_.size());
  if (free_plans_.empty()) {
    plans_.emplace_back();
  } else {
    number = free_plans_.back();
    free_plans_.pop_back();
  }
  auto& p = plans_[number];
  p.space = space;
  p.rank = rank;
  p.lasts = lasts;
  p.open = true;
  ++p.incarnation;
  ++count_of(space);
  return number;
}

void anonymous_table::close_plan(plan_number number) {
  auto& p = plans_[number];
  assert(p.open);
  p.open = false;
  p.answers.clear();
  p.pages.clear();
  p.known.clear();
  --count_of(p.space);
  free_plans_.push_back(number);
}

std::uint64_t anonymous_table::plan_id(plan_number number) const noexcept {
  return plan_bit | (std::uint64_t{plans_[number].incarnation & 0x7fffffffU} << 32U) | number;
}

std::optional<anonymous_table::plan_number> anonymous_table::find_plan(std::uint64_t id) const noexcept {
  const auto number = static_cast<plan_number>(id & 0xffffffffU);
  if (number >= plans_.size() || !plans_[number].open || plan_id(number) != id)
    return std::nullopt;
  return number;
}

std::uint64_t anonymous_table::resident_bytes() const noexcept {
  std::uint64_t bytes = pages_.capacity() * sizeof(anonymous_page) + free_pages_.capacity() * sizeof(anonymous_number) +
                        plans_.capacity() * sizeof(anonymous_plan) + free_plans_.capacity() * sizeof(plan_number) +
                        counts_.capacity() * sizeof(std::uint64_t);
  for (const auto& p : plans_)
    bytes += p.answers.capacity() * sizeof(location) + p.pages.capacity() * sizeof(anonymous_number) +
             p.known.capacity() * sizeof(p.known[0]);
  return bytes + deadlines_.resident_bytes();
}

} // namespace troupe
