#pragma once

#include "actors/node/metrics/probes.hpp"
#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "io/disk_budget.hpp"
#include "messages/messages.hpp"
#include "metrics/metric_family.hpp"

#include <functional>
#include <memory>
#include <vector>

/// Where the text of `/metrics` comes from, source by source.

namespace troupe {

/// What the metrics actor has, after it was told the statistics of now. Without a node: what it was told last.
metrics_source source_of(caf::actor_system& system, node_actor node, metrics_actor metrics);

/// What became of the log of this process.
metrics_source source_of_log();

/// Namespaces as they are now, those of the config and those made at run time. `describe` asks for all of them.
using describe_function = std::function<void(std::function<void(result<std::vector<namespace_info>>)>)>;
metrics_source source_of_namespaces(describe_function describe, const series_limits& limits = {});

/// What the directory of handshakes has done.
metrics_source source_of(caf::actor_system& system, directory_actor directory);

/// Whether the node is degraded, and what is left of its memory and of the disk space that it may use for namespaces of
/// clients. Each may be null.
metrics_source source_of(std::shared_ptr<const node_condition> condition, shared_budget memory,
                         std::shared_ptr<const io::disk_budget> disk = {});

/// What LMCache's clients have asked for.
metrics_source source_of_lmcache(std::shared_ptr<const lmcache::counters> counts);

} // namespace troupe
