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
  /// Of the program, and of the messages between nodes.
  std::string version;
  std::uint32_t protocol = 0;
  /// Whether the node serves; if not, why. Called from io threads, several at once.
  std::function<result<void>()> ready;
  /// What it lacks although it serves, as sentences. Likewise.
  std::function<std::vector<std::string>()> shortcomings;
  /// Their texts make up `/metrics`, in this order. No two may have a metric of the same name.
  std::vector<metrics_source> metrics;
  /// Who may see `/metrics`, which tells names of namespaces.
  role metrics_role = role::read;
};

/// Adds the routes that people and their tools look after a node with: /health, /ready, /version and /metrics.
void add_admin_routes(router& routes, admin_options options);

/// The metrics of a server. `metrics` must outlive the routes.
metrics_source source_of(const request_metrics& metrics);

} // namespace troupe::http
