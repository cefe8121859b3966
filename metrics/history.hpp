#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "base/identifiers.hpp"
#include "metrics/request_latencies.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace troupe {

/// The counts of a node since its start, for the history. `sort` orders namespaces and ranks by their ids and numbers.
struct activity_totals {
  struct namespace_totals {
    namespace_id id;
    std::uint64_t lookups = 0;
    std::uint64_t asked_keys = 0;
    std::uint64_t found_keys = 0;
    /// As in `lookup_counts`.
    std::uint64_t memory_keys = 0;
    std::uint64_t disk_keys = 0;
    std::uint64_t peer_keys = 0;
    std::uint64_t evicted_keys = 0;
  };
  struct rank {
    namespace_id ns;
    rank_number number = 0;
    std::uint64_t loaded_bytes = 0;
    std::uint64_t saved_bytes = 0;
    /// All loaded pages, and those of them that were in memory without a prefetch.
    std::uint64_t loaded_pages = 0;
    std::uint64_t memory_pages = 0;
  };
  struct client {
    /// As in `client_stats`.
    std::uint64_t number = 0;
    std::uint64_t loaded_bytes = 0;
    std::uint64_t saved_bytes = 0;
  };

  std::vector<namespace_totals> namespaces;
  std::vector<rank> ranks;
  std::vector<client> clients{};
  /// Pages that were fetched from peers.
  std::uint64_t peer_pages = 0;
  /// Reads and writes of slabs that are in progress. Not a total.
  std::uint64_t in_flight = 0;
  /// Times in all namespaces: lookups, loads whose pages were in memory, loads that waited for the disk, and saves.
  request_histogram::counts lookup_times{};
  request_histogram::counts memory_load_times{};
  request_histogram::counts disk_load_times{};
  request_histogram::counts save_times{};

  void sort();
};

/// The activity of a period.
struct activity {
  duration over{};
  std::uint64_t lookups = 0;
  std::uint64_t asked_keys = 0;
  std::uint64_t found_keys = 0;
  /// The found keys whose tier is known, as in `lookup_counts`.
  std::uint64_t memory_keys = 0;
  std::uint64_t disk_keys = 0;
  std::uint64_t peer_keys = 0;
  std::uint64_t evicted_keys = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t saved_bytes = 0;
  std::uint64_t loaded_pages = 0;
  std::uint64_t memory_pages = 0;
  /// Only for the node as a whole, as everything below.
  std::uint64_t peer_pages = 0;
  /// At the end of the period.
  std::uint64_t in_flight = 0;
  duration lookup_p50{};
  duration lookup_p99{};
  duration memory_load_p50{};
  duration memory_load_p99{};
  duration disk_load_p50{};
  duration disk_load_p99{};
  duration save_p50{};
  duration save_p99{};

  /// The share of requested keys that were found. Nothing without requests.
  std::optional<double> hit_ratio() const noexcept;
  /// 10⁹ bytes per second.
  double load_gbps() const noexcept;
  double save_gbps() const noexcept;
  /// Loaded pages that were read from the slab, by the load itself or by a prefetch.
  std::uint64_t disk_pages() const noexcept { return loaded_pages - std::min(loaded_pages, memory_pages); }
};

/// The activity between two totals: of the node, of a namespace with its ranks, or of a rank. Objects that are new
/// count from 0; removed ones do not count, nor do those whose counts have restarted and are lower.
activity activity_between(const activity_totals& before, const activity_totals& after, duration over);
activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& ns);
activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& ns, rank_number rank);

/// The activity of an attached client, by its number: bytes only.
activity activity_of_client(const activity_totals& before, const activity_totals& after, duration over,
                            std::uint64_t number);

/// The last hour of a node, in samples of ten seconds, its last six hours, in samples of a minute, and the totals of
/// the last minute. Bounded in size. Time is an argument. Not thread-safe.
class history {
public:
  /// The interval at which totals are expected.
  static constexpr duration interval = std::chrono::seconds(10);
  static constexpr std::size_t samples_most = 360;
  /// One minute, and the mark at its start.
  static constexpr std::size_t marks_most = 7;
  /// The interval of the long history; it has `samples_most` samples, too.
  static constexpr duration long_interval = (marks_most - 1) * interval;

  struct sample {
    /// The end of the sample, in seconds since 1970.
    std::int64_t at = 0;
    activity what;
  };

  struct mark {
    timestamp at{};
    activity_totals totals;
  };

  /// `unix_seconds`: the same moment as wall-clock time.
  void observe(timestamp now, std::int64_t unix_seconds, activity_totals totals);

  /// The samples, oldest first.
  const std::deque<sample>& samples() const noexcept { return samples_; }
  const std::deque<sample>& long_samples() const noexcept { return long_samples_; }

  /// The oldest totals of the last minute, for a comparison with the present ones; null if there are none.
  const mark* minute_ago() const noexcept { return marks_.empty() ? nullptr : &marks_.front(); }

private:
  std::deque<sample> samples_;
  std::deque<sample> long_samples_;
  std::deque<mark> marks_;
  /// Intervals since the end of the last sample of the long history.
  std::size_t since_long_ = 0;
};

} // namespace troupe
