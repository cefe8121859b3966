#pragma once

#include "base/error.hpp"
#include "metrics/duration_histogram.hpp"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

using metric_labels = std::vector<prometheus::ClientMetric::Label>;

/// All series of one name. A counter's name ends in `_total`.
class metric_family {
public:
  using kind = prometheus::MetricType;

  metric_family(std::string name, std::string help, kind what = kind::Gauge)
      : family_{std::move(name), std::move(help), what, {}} {}

  /// Adds a series; its labels must differ from those of the others.
  void add(metric_labels where, double value);
  void add(metric_labels where, std::uint64_t value) { add(std::move(where), static_cast<double>(value)); }

  template <class Histogram>
  void add(metric_labels where, const histogram_sum<Histogram>& x) {
    prometheus::ClientMetric out;
    out.label = std::move(where);
    auto& h = out.histogram;
    for (std::size_t i = 0; i < x.counts.size(); ++i) {
      h.sample_count += x.counts[i];
      // The text has one more bucket, without a bound, which is the count.
      if (i < Histogram::bounds)
        h.bucket.push_back({h.sample_count, static_cast<double>(Histogram::first_bound_ns << i) / 1e9});
    }
    h.sample_sum = static_cast<double>(x.nanoseconds) / 1e9;
    family_.metric.push_back(std::move(out));
  }

  const prometheus::MetricFamily& data() const noexcept { return family_; }

private:
  prometheus::MetricFamily family_;
};

/// The text format of Prometheus, version 0.0.4.
std::string to_text(const std::vector<metric_family>& families);

/// Is called once with the text of some metrics, from any thread; must be quick and not throw.
using metrics_callback = std::function<void(result<std::string>)>;

/// A source of metrics as text. Calls back at once or later; must not wait.
using metrics_source = std::function<void(metrics_callback)>;

} // namespace troupe
