#pragma once

#include "actors/node/metrics/probes.hpp"
#include "actors/support/node_condition.hpp"
#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "io/slab/disk_budget.hpp"
#include "messages/messages.hpp"
#include "metrics/metric_family.hpp"

#include <functional>
#include <memory>
#include <vector>

/// Sources of the text of `/metrics`.

namespace troupe {

/// The metrics actor, after the node has updated its statistics. Without a node: the last statistics it received.
metrics_source source_of(caf::actor_system& system, node_actor node, metrics_actor metrics);

/// The log of this process.
metrics_source source_of_log();

/// Present namespaces, of the config and made at run time. `describe` returns all of them.
using describe_function = std::function<void(std::function<void(result<std::vector<namespace_info>>)>)>;
metrics_source source_of_namespaces(describe_function describe, const series_limits& limits = {});

/// The directory of handshakes.
metrics_source source_of(caf::actor_system& system, directory_actor directory);

/// The node's degradations, and the use of its memory and of the disk space for namespaces of clients. Each argument
/// may be null.
metrics_source source_of(std::shared_ptr<const node_condition> condition, shared_budget memory,
                         std::shared_ptr<const io::disk_budget> disk = {});

/// Requests of LMCache clients.
metrics_source source_of_lmcache(std::shared_ptr<const lmcache::counters> counts);

/// Published events.
metrics_source source_of_events(std::shared_ptr<const events::counters> counts);

} // namespace troupe
