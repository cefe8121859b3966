#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace troupe {

/// How much all slabs of a node read a second together though nobody asks, shared between them in equal parts of bytes,
/// whatever the size of their pages. Knows neither slab nor clock; any thread may call it.
///
/// Two rules, as neither suffices alone. Each slab that has pages to read rests after each of them for as long as the
/// others take for as many bytes, less what it has waited for these: that makes the parts equal. And no page begins
/// before those have had their time that were given out before it: that makes their sum right also where slabs come and
/// go with a page each.
class scrub_pace {
public:
  /// At least one byte a second.
  explicit scrub_pace(std::uint64_t bytes_per_second);

  /// A slab has pages to read from now on, or none any more.
  void join();
  void leave();

  /// From when on a page of so many bytes may be read. Its time is given out: what is not read is not made up for.
  timestamp take(std::uint64_t bytes, timestamp now);

  /// For how long a slab rests that has joined and has read so many bytes.
  duration rest(std::uint64_t bytes) const;

private:
  duration time_of(std::uint64_t bytes, std::size_t slabs) const;

  const double bytes_per_second_;
  mutable std::mutex mutex_;
  std::size_t joined_ = 0;
  timestamp free_at_{};
};

} // namespace troupe
