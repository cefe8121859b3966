#pragma once

#include "actors/node/metrics/metrics_state.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "io/disk_budget.hpp"
#include "lmcache/counters.hpp"
#include "messages/messages.hpp"
#include "metrics/metric_family.hpp"

#include <cstddef>
#include <vector>

/// What each part of a node shows of itself: the one place where its metrics have their names. docs/http-api.md has the
/// same names, and a test compares them.

namespace troupe {

/// The registry's, the allocators' and the io workers', as the node has gathered them.
void show(metrics_state& to, const node_stats& stats);

/// Namespaces and ranks are made by clients, so their number is limited here: those beyond are summed up as "other".
/// Constants, since what they protect is the scraper: 64 names with 8 series, 512 ranks with 5 each.
struct series_limits {
  std::size_t namespaces = 64;
  /// Over all namespaces.
  std::size_t ranks = 512;
};

/// These namespaces: "troupe_namespace_…".
std::vector<metric_family> families_of(std::vector<namespace_info> spaces, const series_limits& limits);

/// The directory of handshakes: "troupe_handshake_…".
std::vector<metric_family> families_of(const handshake_stats& x);

/// Whether the node is degraded.
std::vector<metric_family> families_of(const node_condition& condition);

/// What is left of its memory.
std::vector<metric_family> families_of(const memory_budget& memory);
std::vector<metric_family> families_of(const io::disk_budget& disk);

/// What clients of LMCache have asked for: "troupe_lmcache_…".
std::vector<metric_family> families_of(const lmcache::counters& counts);

/// What became of the log of this process.
std::vector<metric_family> families_of_log();

} // namespace troupe
