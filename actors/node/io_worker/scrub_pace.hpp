#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace troupe {

/// A rate limit for scrubbing that all slabs of a node share, in equal parts of bytes, whatever the size of their
/// pages. Independent of slabs and clocks. Any thread may call it.
///
/// It combines two rules, because neither suffices alone. After each page, a slab that has pages to read rests for the
/// time that the other slabs take for as many bytes, less the time that it waited for them; that makes the parts equal.
/// And no page begins before the time given to all earlier pages has passed; that keeps the sum right also when slabs
/// come and go with one page each.
class scrub_pace {
public:
  /// `bytes_per_second`: at least 1.
  explicit scrub_pace(std::uint64_t bytes_per_second);

  /// A slab begins, or stops, to have pages to read.
  void join();
  void leave();

  /// The time from which a page of `bytes` may be read. That time is used up, even if the page is not read.
  timestamp take(std::uint64_t bytes, timestamp now);

  /// The rest of a joined slab that has read `bytes`.
  duration rest(std::uint64_t bytes) const;

private:
  duration time_of(std::uint64_t bytes, std::size_t slabs) const;

  const double bytes_per_second_;
  mutable std::mutex mutex_;
  std::size_t joined_ = 0;
  timestamp free_at_{};
};

} // namespace troupe
