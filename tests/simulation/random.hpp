#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace troupe::simulation {

/// A probability in parts per million.
using ppm = std::uint32_t;

/// Random numbers that are the same on every platform for the same seed (SplitMix64), which the distributions of the
/// standard library are not.
class random_source {
public:
  explicit random_source(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9e3779b97f4a7c15ULL;
    auto x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  /// 0 to n - 1; 0 if n is 0.
  std::uint64_t below(std::uint64_t n) noexcept { return n == 0 ? 0 : next() % n; }

  /// Both ends included.
  std::uint64_t between(std::uint64_t least, std::uint64_t most) noexcept { return least + below(most - least + 1); }
  std::uint32_t number(std::uint32_t least, std::uint32_t most) noexcept {
    return static_cast<std::uint32_t>(between(least, most));
  }

  bool chance(ppm probability) noexcept { return below(1'000'000) < probability; }
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

  duration time(duration least, duration most) noexcept {
    return duration(static_cast<duration::rep>(
        between(static_cast<std::uint64_t>(least.count()), static_cast<std::uint64_t>(most.count()))));
  }

  /// Mostly near `least`, at times near `most`: the order of magnitude is distributed evenly.
  duration skewed_time(duration least, duration most) noexcept {
    auto top = least;
    std::uint64_t doublings = 0;
    for (; top < most; top *= 2)
      ++doublings;
    auto low = least;
    for (auto n = below(doublings + 1); n > 0; --n)
      low *= 2;
    return time(std::min(low, most), std::min(2 * low, most));
  }

  template <class T>
  const T& pick(const std::vector<T>& from) noexcept {
    return from[below(from.size())];
  }

  /// An independent stream.
  random_source fork() noexcept { return random_source(next()); }

private:
  std::uint64_t state_;
};

} // namespace troupe::simulation
