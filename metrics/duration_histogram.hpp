#pragma once

#include "base/clock.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace troupe {

/// How many durations fell into which range: upper bounds are `FirstBound` nanoseconds, twice, four times as many, …;
/// above the last there is one more bucket. Counting is one addition each to two counters; any thread may do it, and
/// any may read. What is read meanwhile may have a duration in one counter already and not yet in the other.
template <std::uint64_t FirstBound, std::size_t Bounds>
class basic_duration_histogram {
public:
  static constexpr std::size_t bounds = Bounds;
  static constexpr std::uint64_t first_bound_ns = FirstBound;
  /// By bucket, not cumulative.
  using counts = std::array<std::uint64_t, bounds + 1>;

  /// A negative one counts as 0.
  void add(duration x) noexcept {
    const auto ns = x.count() > 0 ? static_cast<std::uint64_t>(x.count()) : 0;
    const auto units = ns / first_bound_ns + (ns % first_bound_ns > 0 ? 1 : 0);
    // The first bound that is not below: 1 unit, 2, 4, …
    const auto bucket = units <= 1 ? 0 : static_cast<std::size_t>(std::bit_width(units - 1));
    counts_[std::min(bucket, bounds)].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(ns, std::memory_order_relaxed);
  }

  /// Adds its counts to those of others.
  void add_to(counts& sum, std::uint64_t& nanoseconds) const noexcept {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      sum[i] += counts_[i].load(std::memory_order_relaxed);
    nanoseconds += nanoseconds_.load(std::memory_order_relaxed);
  }

private:
  std::array<std::atomic<std::uint64_t>, bounds + 1> counts_{};
  std::atomic<std::uint64_t> nanoseconds_{0};
};

/// What several histograms of one kind have counted together. One thread.
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
