#pragma once

#include "messages/metrics_messages.hpp"
#include "metrics/metric_family.hpp"
#include "metrics/request_latencies.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Counters, gauges and histograms of one node, all labelled with its name.
class metrics_state {
public:
  /// `latency`: where samples are counted, readable by other threads.
  explicit metrics_state(std::string node_name,
                         std::shared_ptr<request_latencies> latency = std::make_shared<request_latencies>())
      : node_name_(std::move(node_name)), latency_(std::move(latency)) {}

  /// Adds samples to the histograms. Samples of unknown kinds, which another version could send, are counted
  /// separately.
  void observe(const latency_batch& batch);

  /// Sets a gauge, as in `set("troupe_slots", "…", {{"rank", "0"}, {"state", "free"}}, 12)`.
  void set(const std::string& name, const std::string& help, metric_labels labels, double value);

  /// Sets a counter, whose name ends in `_total`, to a count since the start that another part keeps. Never decreases.
  void count(const std::string& name, const std::string& help, metric_labels labels, double value);

  /// Removes series of ranks that are not served any more: those with a namespace and a rank for which `served` is
  /// false.
  void forget_ranks(const std::function<bool(const std::string& ns, const std::string& rank)>& served);

  /// Removes series of nodes that are not known any more: those with a `peer` for which `known` is false.
  void forget_peers(const std::function<bool(const std::string& peer)>& known);

  /// Returns all metrics as text for a scraper.
  std::string render() const;

private:
  struct family {
    std::string help;
    metric_family::kind what{};
    /// By labels, without the node's.
    std::map<metric_labels, double> series;
  };

  double& at(const std::string& name, const std::string& help, metric_family::kind what, metric_labels labels);
  metric_labels with_node(const metric_labels& labels) const;

  std::string node_name_;
  std::shared_ptr<request_latencies> latency_;
  std::array<std::uint64_t, request_kind_count> items_{};
  std::uint64_t unknown_ = 0;
  std::map<std::string, family> families_;
};

} // namespace troupe
