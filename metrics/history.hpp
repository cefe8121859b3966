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

/// What a node has counted since its start, as far as a history is kept of it. Namespaces and ranks are in the order of
/// their ids and numbers: `sort` brings them there.
struct activity_totals {
  struct space {
    namespace_id id;
    std::uint64_t lookups = 0;
    std::uint64_t asked_keys = 0;
    std::uint64_t found_keys = 0;
    std::uint64_t evicted_keys = 0;
  };
  struct rank {
    namespace_id space;
    rank_number number = 0;
    std::uint64_t loaded_bytes = 0;
    std::uint64_t saved_bytes = 0;
  };

  std::vector<space> spaces;
  std::vector<rank> ranks;
  /// Of all namespaces.
  request_histogram::counts lookup_times{};

  void sort();
};

/// What happened in some time.
struct activity {
  duration over{};
  std::uint64_t lookups = 0;
  std::uint64_t asked_keys = 0;
  std::uint64_t found_keys = 0;
  std::uint64_t evicted_keys = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t saved_bytes = 0;
  /// Of the node as a whole only.
  duration lookup_p50{};
  duration lookup_p99{};

  /// Of the keys that were asked for: those that were found. Nothing where none were.
  std::optional<double> hit_ratio() const noexcept;
  /// 10⁹ bytes per second.
  double load_gbps() const noexcept;
  double save_gbps() const noexcept;
};

/// What happened between two totals: of the node, of a namespace with its ranks, and of a rank. What came into being
/// meanwhile counts from 0; what is gone does not count, nor does what has begun anew and has counted less since.
activity activity_between(const activity_totals& before, const activity_totals& after, duration over);
activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& space);
activity activity_between(const activity_totals& before, const activity_totals& after, duration over,
                          const namespace_id& space, rank_number rank);

/// The last hour of a node, in samples of ten seconds, and the totals of the last minute. Bounded, whatever happens. It
/// is told the time. Not thread-safe.
class history {
public:
  /// How often totals are to be told.
  static constexpr duration interval = std::chrono::seconds(10);
  static constexpr std::size_t samples_most = 360;
  /// A minute and the one that begins it.
  static constexpr std::size_t marks_most = 7;

  struct sample {
    /// Of its end, in seconds since 1970.
    std::int64_t at = 0;
    activity what;
  };

  struct mark {
    timestamp at{};
    activity_totals totals;
  };

  /// `unix_seconds`: the same moment, for people.
  void observe(timestamp now, std::int64_t unix_seconds, activity_totals totals);

  /// The oldest first.
  const std::deque<sample>& samples() const noexcept { return samples_; }

  /// The oldest totals of the last minute, to compare those of now with; null if there are none.
  const mark* minute_ago() const noexcept { return marks_.empty() ? nullptr : &marks_.front(); }

private:
  std::deque<sample> samples_;
  std::deque<mark> marks_;
};

} // namespace troupe
