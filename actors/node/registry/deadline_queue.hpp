#pragma once

#include "base/clock.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// A queue of deadlines of numbered objects, at most one each; the numbers should be small, such as positions in a
/// pool. A binary heap with the place of each number, so that a deadline moves or is removed in O(log n) and leaves
/// nothing behind.
class deadline_queue {
public:
  /// Adds a deadline, or moves it.
  void set(std::uint32_t id, timestamp at);

  /// Does nothing if there is no such deadline.
  void erase(std::uint32_t id);

  bool contains(std::uint32_t id) const noexcept { return id < places_.size() && places_[id] != 0; }

  /// The number with the earliest deadline, if that is at or before `now`.
  std::optional<std::uint32_t> due(timestamp now) const;

  /// The earliest deadline.
  std::optional<timestamp> next() const;

  std::size_t size() const noexcept { return heap_.size(); }
  std::uint64_t resident_bytes() const noexcept;

private:
  struct item {
    timestamp at;
    std::uint32_t id;
  };

  void put(std::size_t position, item what);
  void rise(std::size_t position, item what);
  void sink(std::size_t position, item what);

  std::vector<item> heap_;
  /// By id: place in the heap plus one; 0 if it has no deadline.
  std::vector<std::uint32_t> places_;
};

} // namespace troupe
