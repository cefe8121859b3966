#pragma once

#include "base/clock.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Deadlines of numbered things, each at most once; the numbers should be small, as those of pool positions are. A
/// binary heap that knows where each number stands, so that a deadline moves or goes in O(log n) and leaves no litter.
class deadline_queue {
public:
  /// Adds, or moves.
  void set(std::uint32_t id, timestamp at);

  /// Does nothing if there is no such deadline.
  void erase(std::uint32_t id);

  bool contains(std::uint32_t id) const noexcept { return id < places_.size() && places_[id] != 0; }

  /// The earliest, if it is at or before `now`.
  std::optional<std::uint32_t> due(timestamp now) const;

  /// When the next is due.
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
  /// By id: place in the heap plus one, 0 if it is not there.
  std::vector<std::uint32_t> places_;
};

} // namespace troupe
