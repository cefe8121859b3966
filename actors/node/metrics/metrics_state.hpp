#pragma once

#include "messages/metrics_messages.hpp"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Counters and histograms of one node, in the Prometheus text format (version 0.0.4).
class metrics_state {
public:
  explicit metrics_state(const std::string& node_name);

  /// Adds to the histograms; samples of unknown kinds, which another version could send, are counted as such.
  void observe(const latency_batch& batch);

  /// Sets a gauge, as in `set("troupe_slots", {{"rank", "0"}, {"state", "free"}}, 12)`.
  void set(const std::string& name, const std::string& help, const prometheus::Labels& labels, double value);

  /// Sets a counter, whose name ends in `_total`, to what somebody else has counted since the start. Never falls.
  void count(const std::string& name, const std::string& help, const prometheus::Labels& labels, double value);

  /// Everything, as a page for a scraper.
  std::string render() const;

private:
  std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Labels node_labels_;
  std::vector<prometheus::Histogram*> latency_;
  std::vector<prometheus::Counter*> items_;
  prometheus::Counter* unknown_ = nullptr;
};

} // namespace troupe
