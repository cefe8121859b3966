#include "io/engine/operation_table.hpp"

#include <cassert>

namespace troupe::io {

namespace {

constexpr std::uint32_t generation_mask = (1U << 30U) - 1;

} // namespace

std::uint64_t operation_table::handle_of(index at) const noexcept {
  return std::uint64_t{rows_[at].generation} << 32U | at;
}

operation_table::row* operation_table::find_running(std::uint64_t handle) noexcept {
  const auto at = index_of(handle);
  if (at >= rows_.size() || rows_[at].state != state::running || handle_of(at) != handle)
    return nullptr;
  return &rows_[at];
}

operation_table::index operation_table::add(const request& what, queue_name where) {
  if (free_ == none) {
    rows_.emplace_back();
    free_ = static_cast<index>(rows_.size() - 1);
  }
  const auto i = free_;
  auto& r = rows_[i];
  free_ = r.next;
  r.what = what;
  r.done = 0;
  r.fruitless = 0;
  r.abandoned = errc::ok;
  r.queue = where;
  ++used_;
  append(i);
  if (what.deadline != timestamp::max())
    set_deadline(i, what.deadline);
  return i;
}

operation_table::index operation_table::start_next(queue_name of) noexcept {
  const auto i = queue(of).first;
  if (i == none)
    return none;
  unlink(i);
  rows_[i].state = state::running;
  ++queue(of).running;
  queue(of).running_bytes += rows_[i].what.length;
  return i;
}

void operation_table::remove(index i) {
  auto& r = rows_[i];
  assert(r.state != state::free);
  if (r.state == state::waiting) {
    unlink(i);
  } else {
    --queue(r.queue).running;
    queue(r.queue).running_bytes -= r.what.length;
  }
  --used_;
  drop_deadline(i);
  r.state = state::free;
  r.generation = (r.generation + 1) & generation_mask;
  r.next = free_;
  free_ = i;
}

void operation_table::append(index i) noexcept {
  auto& r = rows_[i];
  auto& q = queue(r.queue);
  r.state = state::waiting;
  r.previous = q.last;
  r.next = none;
  (q.last == none ? q.first : rows_[q.last].next) = i;
  q.last = i;
  ++q.waiting;
}

void operation_table::unlink(index i) noexcept {
  const auto& r = rows_[i];
  auto& q = queue(r.queue);
  (r.previous == none ? q.first : rows_[r.previous].next) = r.next;
  (r.next == none ? q.last : rows_[r.next].previous) = r.previous;
  --q.waiting;
}

// -- deadlines --

operation_table::index operation_table::take_expired(timestamp now) {
  if (alarms_.empty() || alarms_.front().deadline > now)
    return none;
  const auto i = alarms_.front().row;
  drop_deadline(i);
  return i;
}

void operation_table::set_deadline(index i, timestamp deadline) {
  drop_deadline(i);
  alarms_.push_back({deadline, i});
  const auto last = static_cast<std::uint32_t>(alarms_.size() - 1);
  rows_[i].heap_position = last;
  sift_up(last);
}

std::optional<timestamp> operation_table::next_deadline() const noexcept {
  if (alarms_.empty())
    return std::nullopt;
  return alarms_.front().deadline;
}

void operation_table::drop_deadline(index i) noexcept {
  const auto position = rows_[i].heap_position;
  if (position == none)
    return;
  rows_[i].heap_position = none;
  const auto last = alarms_.back();
  alarms_.pop_back();
  if (last.row == i)
    return;
  place(position, last);
  sift_up(position);
  sift_down(rows_[last.row].heap_position);
}

void operation_table::place(std::uint32_t position, const alarm& what) noexcept {
  alarms_[position] = what;
  rows_[what.row].heap_position = position;
}

void operation_table::sift_up(std::uint32_t position) noexcept {
  const auto moving = alarms_[position];
  while (position > 0) {
    const auto parent = (position - 1) / 2;
    if (alarms_[parent].deadline <= moving.deadline)
      break;
    place(position, alarms_[parent]);
    position = parent;
  }
  place(position, moving);
}

void operation_table::sift_down(std::uint32_t position) noexcept {
  const auto moving = alarms_[position];
  const auto size = alarms_.size();
  for (;;) {
    auto child = position * 2 + 1;
    if (child >= size)
      break;
    if (child + 1 < size && alarms_[child + 1].deadline < alarms_[child].deadline)
      ++child;
    if (moving.deadline <= alarms_[child].deadline)
      break;
    place(position, alarms_[child]);
    position = child;
  }
  place(position, moving);
}

} // namespace troupe::io
