#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// A histogram of durations: the upper bounds are `FirstBound` nanoseconds, twice, four times as many, …; above the
/// last there is one more bucket. Counting adds to two counters. Any thread may count or read; a concurrent read may
/// see a duration in only one of the two.
template <std::uint64_t FirstBound, std::size_t Bounds>
class basic_duration_histogram {
public:
  static constexpr std::size_t bounds = Bounds;
  static constexpr std::uint64_t first_bound_ns = FirstBound;
  /// By bucket, not cumulative.
  using counts = std::array<std::uint64_t, bounds + 1>;

  /// Counts a duration; a negative one counts as 0.
  void add(duration x) noexcept {
    const auto ns = x.count() > 0 ? static_cast<std::uint64_t>(x.count()) : 0;
    const auto units = ns / first_bound_ns + (ns % first_bound_ns > 0 ? 1 : 0);
    // The first bound that is not below the duration: 1 unit, 2, 4, …
    const auto bucket = units <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(units - 1));
    counts_[std::min(bucket, bounds)].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(ns, std::memory_order_relaxed);
  }

  /// Adds its counts to `sum` and `nanoseconds`.
  void add_to(counts& sum, std::uint64_t& nanoseconds) const noexcept {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      sum[i] += counts_[i].load(std::memory_order_relaxed);
    nanoseconds += nanoseconds_.load(std::memory_order_relaxed);
  }

  /// The quantile `q` of these durations, with those of a bucket spread evenly over it, and those of the last one up to
  /// twice its bound. Zero without durations.
  static duration quantile(const counts& x, double q) noexcept {
    std::uint64_t all = 0;
    for (const auto n : x)
      all += n;
    const auto wanted = std::clamp(q, 0.0, 1.0) * static_cast<double>(all);
    double below = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto here = static_cast<double>(x[i]);
      if (here > 0 && below + here >= wanted) {
        const auto from = i == 0 ? 0.0 : static_cast<double>(first_bound_ns << (i - 1));
        const auto to = static_cast<double>(first_bound_ns << i);
        return duration{static_cast<duration::rep>(from + (to - from) * std::max(wanted - below, 0.0) / here)};
      }
      below += here;
    }
    return duration::zero();
  }

private:
  std::array<std::atomic<std::uint64_t>, bounds + 1> counts_{};
  std::atomic<std::uint64_t> nanoseconds_{0};
};

/// The sum of the counts of several histograms of one kind. Used by one thread.
template <class Histogram>
struct histogram_sum {
  typename Histogram::counts counts{};
  std::uint64_t nanoseconds = 0;

  void add(const Histogram& x) noexcept { x.add_to(counts, nanoseconds); }

  bool empty() const noexcept {
    return std::all_of(counts.begin(), counts.end(), [](std::uint64_t n) { return n == 0; });
  }
};

} // namespace troupe
