#include "connector/output_aggregator.hpp"

#include <algorithm>

namespace troupe::connector {

worker_output output_aggregator::aggregate(std::span<const worker_output> outputs) {
  worker_output joined;
  const auto count = [this](const std::vector<std::string>& named, counts& so_far, std::vector<std::string>& complete) {
    for (const auto& id : named)
      if (++so_far[id] >= workers_) {
        complete.push_back(id);
        so_far.erase(id);
      }
  };
  for (const auto& x : outputs) {
    count(x.sent, sent_, joined.sent);
    count(x.received, received_, joined.received);
    failed_.insert(x.failed.begin(), x.failed.end());
    joined.load_errors.insert(joined.load_errors.end(), x.load_errors.begin(), x.load_errors.end());
    joined.stores.insert(joined.stores.end(), x.stores.begin(), x.stores.end());
  }
  for (const auto& id : joined.received)
    if (failed_.erase(id) > 0)
      joined.failed.push_back(id);
  std::sort(joined.load_errors.begin(), joined.load_errors.end());
  joined.load_errors.erase(std::unique(joined.load_errors.begin(), joined.load_errors.end()), joined.load_errors.end());
  return joined;
}

} // namespace troupe::connector
