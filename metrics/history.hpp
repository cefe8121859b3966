#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "base/identifiers.hpp"
#include "metrics/request_latencies.hpp"

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
    std::uint64_t evicted_keys = 0;
  };
  struct rank {
    namespace_id ns;
    rank_number number = 0;
    std::uint64_t loaded_bytes = 0;
    std::uint64_t saved_bytes = 0;
  };

  std::vector<namespace_totals> namespaces;
  std::vector<rank> ranks;
  /// Of all namespaces.
  request_histogram::counts lookup_times{};

  void sort();
};

/// The activity of a period.
struct activity {
  duration over{};
  std::uint64_t lookups = 0;
  std::uint64_t asked_keys = 0;
  std::uint64_t found_keys = 0;
  std::uint64_t evicted_keys = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t saved_bytes = 0;
  /// Only for the node as a whole.
  duration lookup_p50{};
  duration lookup_p99{};

  /// The share of requested keys that were found. Nothing without requests.
  std::optional<double> hit_ratio() const noexcept;
  /// 10⁹ bytes per second.
  double load_gbps() const noexcept;
  double save_gbps() const noexcept;
};

/// The activity between two totals: of the node, of a namespace with its ranks, or of a rank. Objects that are new
/// count from 0; removed ones do not count, nor do those whose counts have restarted and are lower.
activity activity_between(const activity_totals& before, const activity_totals& after, duration over);
activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& ns);
activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& ns, rank_number rank);

/// The last hour of a node, in samples of ten seconds, and the totals of the last minute. Bounded in size. Time is an
/// argument. Not thread-safe.
class history {
public:
  /// The interval at which totals are expected.
  static constexpr duration interval = std::chrono::seconds(10);
  static constexpr std::size_t samples_most = 360;
  /// One minute, and the mark at its start.
  static constexpr std::size_t marks_most = 7;

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

  /// The oldest totals of the last minute, for a comparison with the present ones; null if there are none.
  const mark* minute_ago() const noexcept { return marks_.empty() ? nullptr : &marks_.front(); }

private:
  std::deque<sample> samples_;
  std::deque<mark> marks_;
};

} // namespace troupe
