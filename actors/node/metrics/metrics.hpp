#pragma once

#include "actors/node/metrics/metrics_state.hpp"
#include "messages/messages.hpp"

#include <memory>
#include <string>

namespace troupe {

/// Collects what the actors of a node measure: latency samples in batches, and the node's statistics as gauges.
class metrics : public metrics_actor::base {
public:
  /// `latencies`: where samples are counted, for others to read.
  metrics(caf::actor_config& config, const std::string& node_name,
          std::shared_ptr<request_latencies> latencies = std::make_shared<request_latencies>());

  const char* name() const override { return "metrics"; }

protected:
  behavior_type make_behavior() override;

private:
  metrics_state state_;
};

} // namespace troupe
