#pragma once

#include "actors/node/metrics/metrics_state.hpp"
#include "actors/support/node_condition.hpp"
#include "base/memory_budget.hpp"
#include "events/counters.hpp"
#include "io/slab/disk_budget.hpp"
#include "lmcache/counters.hpp"
#include "messages/messages.hpp"
#include "metrics/metric_family.hpp"

#include <cstddef>
#include <vector>

/// Metrics of each part of a node: the one place where their names are. docs/http-api.md has the same names, and a test
/// compares them.

namespace troupe {

/// Metrics of the registry, the allocators and the io workers, as the node has gathered them.
void show(metrics_state& to, const node_stats& stats);

/// Limits on series. Clients make namespaces and ranks, so their number is limited here; the rest is summed as "other".
/// They are constants because they protect the scraper: 64 names with 8 series, 512 ranks with 5 each.
struct series_limits {
  std::size_t namespaces = 64;
  /// Over all namespaces.
  std::size_t ranks = 512;
};

/// Namespaces: "troupe_namespace_…".
std::vector<metric_family> families_of(std::vector<namespace_info> namespaces, const series_limits& limits);

/// The directory of handshakes: "troupe_handshake_…".
std::vector<metric_family> families_of(const handshake_stats& x);

/// The degradations of the node.
std::vector<metric_family> families_of(const node_condition& condition);

/// The use of its memory.
std::vector<metric_family> families_of(const memory_budget& memory);
std::vector<metric_family> families_of(const io::disk_budget& disk);

/// Requests of LMCache clients: "troupe_lmcache_…".
std::vector<metric_family> families_of(const lmcache::counters& counts);
/// Published events.
std::vector<metric_family> families_of(const events::counters& counts);

/// The log of this process.
std::vector<metric_family> families_of_log();

} // namespace troupe
