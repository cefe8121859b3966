#pragma once

#include "actors/node/metrics/metrics_state.hpp"
#include "messages/messages.hpp"

#include <memory>
#include <string>

namespace troupe {

/// The actor that collects the measurements of a node's actors: latency samples in batches, and statistics as gauges.
class metrics : public metrics_actor::base {
public:
  /// `latencies`: where samples are counted, readable by other threads.
  metrics(caf::actor_config& config, const std::string& node_name,
          std::shared_ptr<request_latencies> latencies = std::make_shared<request_latencies>());

  const char* name() const override { return "metrics"; }

protected:
  behavior_type make_behavior() override;

private:
  metrics_state state_;
};

} // namespace troupe
