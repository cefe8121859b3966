#include "actors/node/metrics/metrics_state.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

void metrics_state::observe(const latency_batch& batch) {
  constexpr auto longest = static_cast<std::uint64_t>(std::numeric_limits<duration::rep>::max());
  for (const auto& x : batch.samples) {
    if (x.kind >= request_kind_count) {
      ++unknown_;
      continue;
    }
    latency_->by_kind[x.kind].add(duration{static_cast<duration::rep>(std::min(x.nanoseconds, longest))});
    items_[x.kind] += x.items;
  }
}

double& metrics_state::at(const std::string& name, const std::string& help, metric_family::kind what,
                          metric_labels labels) {
  auto& one = families_.try_emplace(name, family{help, what, {}}).first->second;
  return one.series[std::move(labels)];
}

void metrics_state::set(const std::string& name, const std::string& help, metric_labels labels, double value) {
  at(name, help, metric_family::kind::Gauge, std::move(labels)) = value;
}

void metrics_state::count(const std::string& name, const std::string& help, metric_labels labels, double value) {
  auto& known = at(name, help, metric_family::kind::Counter, std::move(labels));
  known = std::max(known, value);
}

void metrics_state::forget_ranks(const std::function<bool(const std::string& ns, const std::string& rank)>& served) {
  for (auto& [name, x] : families_)
    std::erase_if(x.series, [&](const auto& series) {
      const std::string* ns = nullptr;
      const std::string* rank = nullptr;
      for (const auto& [label, value] : series.first) {
        ns = label == "namespace" ? &value : ns;
        rank = label == "rank" ? &value : rank;
      }
      return ns != nullptr && rank != nullptr && !served(*ns, *rank);
    });
}

void metrics_state::forget_peers(const std::function<bool(const std::string& peer)>& known) {
  for (auto& [name, x] : families_)
    std::erase_if(x.series, [&](const auto& series) {
      return std::ranges::any_of(series.first,
                                 [&](const auto& label) { return label.name == "peer" && !known(label.value); });
    });
}

metric_labels metrics_state::with_node(const metric_labels& labels) const {
  metric_labels out{{"node", node_name_}};
  out.insert(out.end(), labels.begin(), labels.end());
  return out;
}

std::string metrics_state::render() const {
  using kind = metric_family::kind;
  metric_family latency("troupe_request_seconds",
                        "Time of a request inside the node, from its arrival at the actor to the answer.",
                        kind::Histogram);
  metric_family items("troupe_request_items_total", "Keys or pages in those requests.", kind::Counter);
  metric_family unknown("troupe_unknown_samples_total", "Latency samples of a kind this version does not know.",
                        kind::Counter);
  for (std::uint32_t i = 0; i < request_kind_count; ++i) {
    const auto where = with_node({{"kind", std::string(to_string(static_cast<request_kind>(i)))}});
    histogram_sum<request_histogram> sum;
    sum.add(latency_->by_kind[i]);
    latency.add(where, sum);
    items.add(where, items_[i]);
  }
  unknown.add(with_node({}), unknown_);
  std::vector<metric_family> all{std::move(latency), std::move(items), std::move(unknown)};
  for (const auto& [name, x] : families_) {
    auto& out = all.emplace_back(name, x.help, x.what);
    for (const auto& [labels, value] : x.series)
      out.add(with_node(labels), value);
  }
  return to_text(all);
}

} // namespace troupe
