#pragma once

#include "base/error.hpp"
#include "http/server/observer.hpp"
#include "metrics/duration_histogram.hpp"
#include "metrics/metric_family.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// Buckets from 32 µs to 33.6 s: wide enough for a request that a shard answers at once, and for one that waits for its
/// deadline.
using duration_histogram = basic_duration_histogram<32'000, 21>;

/// Results of the items of batches, mostly keys: one counter per code, including "full" and "busy".
class item_counts {
public:
  void add(errc code, std::uint64_t items = 1) noexcept {
    counts_[static_cast<std::size_t>(code) % errc_count].fetch_add(items, std::memory_order_relaxed);
  }
  std::uint64_t of(errc code) const noexcept {
    return counts_[static_cast<std::size_t>(code) % errc_count].load(std::memory_order_relaxed);
  }

private:
  std::array<std::atomic<std::uint64_t>, errc_count> counts_{};
};

/// Counts the activity of a server, for Prometheus: durations per route and class of status, waiting times, bytes,
/// connections. Threads count in separate memory, without locks; the counts are summed when they are read.
///
/// There are as many time series as routes, whose names the program chooses, and as there are names in the tokens file;
/// beyond `max_routes` or `max_callers`, the rest is counted together as "other".
class request_metrics final : public observer {
public:
  static constexpr std::size_t max_routes = 128;
  static constexpr std::size_t max_callers = 128;

  request_metrics();
  ~request_metrics() override;
  request_metrics(const request_metrics&) = delete;
  request_metrics& operator=(const request_metrics&) = delete;

  void request_finished(const request_record& x) noexcept override;
  void connection_opened() noexcept override;
  void connection_closed() noexcept override;
  void connection_refused() noexcept override;

  /// For handlers, which know the results of a request's items.
  item_counts& items() noexcept { return *items_; }
  /// The same, for answers that may come after the server and this object were destroyed.
  const std::shared_ptr<item_counts>& shared_items() const noexcept { return items_; }

  /// Current totals. Counts that change meanwhile may be in one series already and not yet in another.
  std::vector<metric_family> collect() const;

private:
  struct series;
  struct caller_series;
  struct stripe;

  /// This many threads count without sharing; more share.
  static constexpr std::size_t stripe_count = 16;

  stripe& mine() noexcept;

  std::unique_ptr<std::array<stripe, stripe_count>> stripes_;
  const std::shared_ptr<item_counts> items_ = std::make_shared<item_counts>();
};

} // namespace troupe::http
