#include "metrics/metric_family.hpp"

#include <prometheus/text_serializer.h>

#include <sstream>

namespace troupe {

void metric_family::add(metric_labels where, double value) {
  prometheus::ClientMetric x;
  x.label = std::move(where);
  x.gauge.value = value;
  x.counter.value = value;
  family_.metric.push_back(std::move(x));
}

std::string to_text(const std::vector<metric_family>& families) {
  std::vector<prometheus::MetricFamily> all;
  all.reserve(families.size());
  for (const auto& x : families)
    all.push_back(x.data());
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

} // namespace troupe
