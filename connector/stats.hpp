#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::connector {

/// The statistics of a worker since they were last taken. Names and meaning of the first five members are those of
/// vLLM's `HF3FSKVConnectorStats`, so that dashboards continue to work; the rest is Troupe's.
///
/// A transfer task is one load or store op on one worker. Its duration runs from the moment it is handed to a
/// coordinator until all its blocks have their results; waiting before that is `queue_wait`.
struct connector_stats {
  /// Seconds, one per successful task; only the first 65,536 if they are not taken for long.
  std::vector<double> save_duration;
  std::vector<double> load_duration;
  std::uint64_t num_failed_save = 0;
  std::uint64_t num_failed_load = 0;
  /// Tasks that have ended, successfully or not.
  std::uint64_t num_transfer_task = 0;

  /// Payload bytes.
  std::uint64_t saved_bytes = 0;
  std::uint64_t loaded_bytes = 0;
  /// Pages that were in the cache already when they were to be saved.
  std::uint64_t skipped_pages = 0;
  /// Pages that the node refused to store because a slab of it is damaged.
  std::uint64_t refused_pages = 0;
  /// Tokens that were loaded.
  std::uint64_t hit_tokens = 0;
  /// Those of these tokens, and of tokens loaded in excess, whose page had to be read from the slab first.
  std::uint64_t disk_tokens = 0;
  /// Seconds that tasks waited before they were submitted, one per task.
  std::vector<double> queue_wait;
  /// Seconds that tasks waited for the registry, one per task.
  std::vector<double> metadata_duration;
  /// Tasks waiting or in progress when the statistics were taken; in joined statistics, the sum.
  std::uint64_t queue_depth = 0;

  friend bool operator==(const connector_stats&, const connector_stats&) = default;

  /// Whether no task has ended.
  bool is_empty() const noexcept { return num_transfer_task == 0; }

  /// Adds another worker's statistics.
  void aggregate(const connector_stats& other);

  /// The values that vLLM prints as "KV Transfer metrics: …": the keys of its HF3FS connector ("Num transfers task",
  /// "P90 save duration (ms)", …) and then Troupe's ("Saved bytes", "Avg queue wait (ms)", …), always the same in the
  /// same order. Durations in milliseconds with 3 decimals, 0 where there is none; percentiles are linear between
  /// ranks, as numpy's default.
  std::vector<std::pair<std::string, double>> reduce() const;

  /// Returns the statistics so far, and resets them.
  connector_stats clone_and_reset();
};

/// Percentile of `samples` in any order, linear between ranks; 0 where there are none. `percent` below 0 counts as 0,
/// above 100 as 100.
double percentile(std::vector<double> samples, double percent);

/// How a member of `connector_stats` is exported to Prometheus.
struct metric_description {
  enum class kind : std::uint8_t { histogram, counter, gauge };
  /// `vllm:hf3fs_save_duration_seconds`, …; counters without the `_total` that clients of Prometheus add.
  std::string_view name;
  kind what = kind::counter;
  std::string_view help;
  /// The upper bounds of a histogram.
  std::vector<double> buckets;
  /// The member's name.
  std::string_view member;
};

/// All metrics, one for each member of `connector_stats`: the four of vLLM's HF3FS connector under their names, and the
/// rest as `vllm:troupe_…`. Histograms observe each number of a list; counters and the gauge are integers.
const std::vector<metric_description>& metric_descriptions();

} // namespace troupe::connector
