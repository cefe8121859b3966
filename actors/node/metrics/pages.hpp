#pragma once

#include "base/error.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "messages/messages.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

class metadata_service;

/// Hands a page of metrics to a function, in the text format of Prometheus. The function is called once, in the thread
/// of an actor or of the caller.
using metrics_page = std::function<void(std::function<void(result<std::string>)>)>;

/// What the metrics actor has, after it was told the statistics of now. Without a node: what it was told last.
metrics_page actors_page(caf::actor_system& system, node_actor node, metrics_actor metrics);

/// What became of the log of this process.
metrics_page log_page();

/// Namespaces and ranks are made by clients, so their number is limited here: those beyond are summed up as "other".
struct namespace_page_limits {
  std::size_t namespaces = 64;
  /// Over all namespaces.
  std::size_t ranks = 512;
};

/// Namespaces as they are now, those of the config and those made at run time. Metrics are "troupe_namespace_…".
metrics_page namespaces_page(std::shared_ptr<const metadata_service> service, const namespace_page_limits& limits = {});

/// Whether the node is degraded, and what is left of its memory. Either may be null.
metrics_page condition_page(std::shared_ptr<const node_condition> condition, shared_budget memory);

/// The page for these namespaces.
std::string namespaces_text(std::vector<namespace_info> spaces, const namespace_page_limits& limits);

} // namespace troupe
