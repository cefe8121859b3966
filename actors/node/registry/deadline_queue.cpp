#include "actors/node/registry/deadline_queue.hpp"

#include <utility>

namespace troupe {

void deadline_queue::put(std::size_t position, item what) {
  heap_[position] = what;
  places_[what.id] = static_cast<std::uint32_t>(position + 1);
}

void deadline_queue::rise(std::size_t position, item what) {
  while (position > 0) {
    const auto above = (position - 1) / 2;
    if (heap_[above].at <= what.at)
      break;
    put(position, heap_[above]);
    position = above;
  }
  put(position, what);
}

void deadline_queue::sink(std::size_t position, item what) {
  for (;;) {
    auto below = 2 * position + 1;
    if (below >= heap_.size())
      break;
    if (below + 1 < heap_.size() && heap_[below + 1].at < heap_[below].at)
      ++below;
    if (what.at <= heap_[below].at)
      break;
    put(position, heap_[below]);
    position = below;
  }
  put(position, what);
}

void deadline_queue::set(std::uint32_t id, timestamp at) {
  if (id >= places_.size())
    places_.resize(std::size_t{id} + 1, 0);
  if (places_[id] == 0) {
    heap_.push_back({at, id});
    rise(heap_.size() - 1, {at, id});
    return;
  }
  const std::size_t position = places_[id] - 1;
  if (at < heap_[position].at)
    rise(position, {at, id});
  else
    sink(position, {at, id});
}

void deadline_queue::erase(std::uint32_t id) {
  if (id >= places_.size() || places_[id] == 0)
    return;
  const std::size_t position = std::exchange(places_[id], 0) - 1;
  const auto last = heap_.back();
  heap_.pop_back();
  if (position == heap_.size())
    return;
  if (position > 0 && last.at < heap_[(position - 1) / 2].at)
    rise(position, last);
  else
    sink(position, last);
}

std::optional<std::uint32_t> deadline_queue::due(timestamp now) const {
  if (heap_.empty() || heap_.front().at > now)
    return std::nullopt;
  return heap_.front().id;
}

std::optional<timestamp> deadline_queue::next() const {
  if (heap_.empty())
    return std::nullopt;
  return heap_.front().at;
}

std::uint64_t deadline_queue::resident_bytes() const noexcept {
  return heap_.capacity() * sizeof(item) + places_.capacity() * sizeof(std::uint32_t);
}

} // namespace troupe
