#include "actors/node/metrics/metrics_state.hpp"

#include <prometheus/text_serializer.h>

#include <sstream>

namespace troupe {

namespace {

/// 1 µs to 4 s in powers of two: wide enough for a registry hop and for a disk that struggles.
prometheus::Histogram::BucketBoundaries latency_buckets() {
  prometheus::Histogram::BucketBoundaries out;
  for (double seconds = 1e-6; seconds < 5.0; seconds *= 2)
    out.push_back(seconds);
  return out;
}

} // namespace

metrics_state::metrics_state(const std::string& node_name)
    : registry_(std::make_shared<prometheus::Registry>()), node_labels_{{"node", node_name}} {
  auto& latency = prometheus::BuildHistogram()
                      .Name("troupe_request_seconds")
                      .Help("Time of a request inside the node, from its arrival at the actor to the answer.")
                      .Labels(node_labels_)
                      .Register(*registry_);
  auto& items = prometheus::BuildCounter()
                    .Name("troupe_request_items_total")
                    .Help("Keys or pages in those requests.")
                    .Labels(node_labels_)
                    .Register(*registry_);
  for (std::uint32_t i = 0; i < request_kind_count; ++i) {
    const std::map<std::string, std::string> labels{{"kind", std::string(to_string(static_cast<request_kind>(i)))}};
    latency_.push_back(&latency.Add(labels, latency_buckets()));
    items_.push_back(&items.Add(labels));
  }
  unknown_ = &prometheus::BuildCounter()
                  .Name("troupe_unknown_samples_total")
                  .Help("Latency samples of a kind this version does not know.")
                  .Labels(node_labels_)
                  .Register(*registry_)
                  .Add({});
}

void metrics_state::observe(const latency_batch& batch) {
  for (const auto& x : batch.samples) {
    if (x.kind >= request_kind_count) {
      unknown_->Increment();
      continue;
    }
    latency_[x.kind]->Observe(static_cast<double>(x.nanoseconds) * 1e-9);
    items_[x.kind]->Increment(x.items);
  }
}

void metrics_state::set(const std::string& name, const std::string& help, const prometheus::Labels& labels,
                        double value) {
  // The library gives back the family and the gauge that exist already.
  prometheus::BuildGauge().Name(name).Help(help).Labels(node_labels_).Register(*registry_).Add(labels).Set(value);
}

void metrics_state::count(const std::string& name, const std::string& help, const prometheus::Labels& labels,
                          double value) {
  auto& counter =
      prometheus::BuildCounter().Name(name).Help(help).Labels(node_labels_).Register(*registry_).Add(labels);
  if (const auto known = counter.Value(); value > known)
    counter.Increment(value - known);
}

std::string metrics_state::render() const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, registry_->Collect());
  return out.str();
}

} // namespace troupe
