#pragma once

#include "base/error.hpp"
#include "http/server/router.hpp"
#include "metrics/metric_family.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::http {

class request_metrics;

struct admin_options {
  /// Versions of the program, and of the messages between nodes.
  std::string version;
  std::uint32_t protocol = 0;
  /// Whether the node serves; if not, why. Called from io threads, several at once.
  std::function<result<void>()> ready;
  /// Degradations of a serving node, as sentences. Likewise.
  std::function<std::vector<std::string>()> degradations;
  /// The sources of `/metrics`, in this order. No two may have a metric of the same name.
  std::vector<metrics_source> metrics;
  /// The role that may read `/metrics`, which contains names of namespaces.
  role metrics_role = role::read;
};

/// Adds the routes for monitoring: /health, /ready, /version and /metrics.
void add_admin_routes(router& routes, admin_options options);

/// The metrics of a server. `metrics` must outlive the routes.
metrics_source source_of(const request_metrics& metrics);

} // namespace troupe::http
