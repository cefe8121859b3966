#include "connector/stats.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace troupe::connector {

namespace {

using kind = metric_description::kind;

void extend(std::vector<double>& samples, const std::vector<double>& others) {
  samples.insert(samples.end(), others.begin(), others.end());
}

double mean(const std::vector<double>& samples) noexcept {
  if (samples.empty())
    return 0;
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

/// Rounds to 3 decimals.
double milliseconds(double seconds) noexcept {
  return std::round(seconds * 1e6) / 1e3;
}

/// From a millisecond, the time of a block of a warm cache, to a time that users notice.
const std::vector<double>& transfer_buckets() {
  static const std::vector<double> buckets{0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0};
  return buckets;
}

/// A request to a registry in the same process takes microseconds, one across the network milliseconds.
const std::vector<double>& registry_buckets() {
  static const std::vector<double> buckets{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                           0.01,    0.025,  0.05,    0.1,    0.25,  1.0,    5.0};
  return buckets;
}

} // namespace

void connector_stats::aggregate(const connector_stats& other) {
  extend(save_duration, other.save_duration);
  extend(load_duration, other.load_duration);
  num_failed_save += other.num_failed_save;
  num_failed_load += other.num_failed_load;
  num_transfer_task += other.num_transfer_task;
  saved_bytes += other.saved_bytes;
  loaded_bytes += other.loaded_bytes;
  skipped_pages += other.skipped_pages;
  refused_pages += other.refused_pages;
  hit_tokens += other.hit_tokens;
  disk_tokens += other.disk_tokens;
  extend(queue_wait, other.queue_wait);
  extend(metadata_duration, other.metadata_duration);
  queue_depth += other.queue_depth;
}

std::vector<std::pair<std::string, double>> connector_stats::reduce() const {
  std::vector<std::pair<std::string, double>> out;
  const auto number = [&out](std::string name, std::uint64_t x) {
    out.emplace_back(std::move(name), static_cast<double>(x));
  };
  const auto times = [&out](const std::string& name, const std::vector<double>& samples) {
    out.emplace_back("Avg " + name + " (ms)", milliseconds(mean(samples)));
    out.emplace_back("P90 " + name + " (ms)", milliseconds(percentile(samples, 90)));
  };
  number("Num transfers task", num_transfer_task);
  number("Num save task success", save_duration.size());
  number("Num save task failed", num_failed_save);
  number("Num load task success", load_duration.size());
  number("Num load task failed", num_failed_load);
  times("save duration", save_duration);
  times("load duration", load_duration);
  number("Saved bytes", saved_bytes);
  number("Loaded bytes", loaded_bytes);
  number("Skipped pages", skipped_pages);
  number("Refused pages", refused_pages);
  number("Hit tokens", hit_tokens);
  number("Disk tokens", disk_tokens);
  times("queue wait", queue_wait);
  times("metadata duration", metadata_duration);
  number("Queue depth", queue_depth);
  return out;
}

connector_stats connector_stats::clone_and_reset() {
  return std::exchange(*this, {});
}

double percentile(std::vector<double> samples, double percent) {
  if (samples.empty())
    return 0;
  // This also handles a `percent` that is not a number.
  const auto part = percent > 0 ? std::min(percent, 100.0) / 100 : 0.0;
  const auto position = part * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto rank = samples.begin() + static_cast<std::ptrdiff_t>(below);
  std::nth_element(samples.begin(), rank, samples.end());
  if (below + 1 == samples.size())
    return *rank;
  // The elements after the rank are not smaller, so the smallest of them is the next rank.
  const auto above = *std::min_element(rank + 1, samples.end());
  return std::lerp(*rank, above, position - static_cast<double>(below));
}

const std::vector<metric_description>& metric_descriptions() {
  static const std::vector<metric_description> descriptions{
      {"vllm:hf3fs_save_duration_seconds", kind::histogram, "Duration of successful saves.", transfer_buckets(),
       "save_duration"},
      {"vllm:hf3fs_load_duration_seconds", kind::histogram, "Duration of successful loads.", transfer_buckets(),
       "load_duration"},
      {"vllm:hf3fs_num_failed_save", kind::counter, "Saves that failed.", {}, "num_failed_save"},
      {"vllm:hf3fs_num_failed_load", kind::counter, "Loads that failed.", {}, "num_failed_load"},
      {"vllm:troupe_num_transfer_task", kind::counter, "Saves and loads that ended.", {}, "num_transfer_task"},
      {"vllm:troupe_saved_bytes", kind::counter, "Payload bytes that were saved.", {}, "saved_bytes"},
      {"vllm:troupe_loaded_bytes", kind::counter, "Payload bytes that were loaded.", {}, "loaded_bytes"},
      {"vllm:troupe_skipped_pages",
       kind::counter,
       "Pages that were not saved because the cache had them.",
       {},
       "skipped_pages"},
      {"vllm:troupe_refused_pages",
       kind::counter,
       "Pages that were not saved because a slab of the node is damaged.",
       {},
       "refused_pages"},
      {"vllm:troupe_hit_tokens", kind::counter, "Tokens that were loaded.", {}, "hit_tokens"},
      {"vllm:troupe_disk_tokens",
       kind::counter,
       "Tokens that were loaded and had to be read from the disk.",
       {},
       "disk_tokens"},
      {"vllm:troupe_queue_wait_seconds", kind::histogram, "Time that saves and loads waited before they began.",
       transfer_buckets(), "queue_wait"},
      {"vllm:troupe_metadata_duration_seconds", kind::histogram, "Time that saves and loads waited for the registry.",
       registry_buckets(), "metadata_duration"},
      {"vllm:troupe_queue_depth", kind::gauge, "Saves and loads that wait or are in progress.", {}, "queue_depth"},
  };
  return descriptions;
}

} // namespace troupe::connector
