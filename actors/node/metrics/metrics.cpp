#include "actors/node/metrics/metrics.hpp"

#include "actors/node/metrics/probes.hpp"
#include "actors/support/actor_support.hpp"

#include <utility>

namespace troupe {

metrics::metrics(caf::actor_config& config, const std::string& node_name, std::shared_ptr<request_latencies> latencies)
    : metrics_actor::base(config), state_(node_name, std::move(latencies)) {}

metrics::behavior_type metrics::make_behavior() {
  return {
      [this](const latency_batch& batch) -> caf::result<void> {
        if (batch.samples.size() > latency_samples_max)
          return to_caf(error{errc::limit_exceeded, std::to_string(batch.samples.size()) +
                                                        " samples in one message; at most " +
                                                        std::to_string(latency_samples_max) + " are allowed"});
        state_.observe(batch);
        return caf::unit;
      },
      [this](const node_stats& stats) -> caf::result<void> {
        show(state_, stats);
        return caf::unit;
      },
      [this](render_atom) { return state_.render(); },
  };
}

} // namespace troupe
