#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "base/error.hpp"
#include "events/counters.hpp"
#include "http/status/program_facts.hpp"
#include "io/memory/extent_source.hpp"
#include "lmcache/client_list.hpp"
#include "messages/messages.hpp"
#include "metrics/history.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::http::node_status {

/// A warning for the operator of the node, with the way out.
struct warning {
  /// "failed" lasts until the node is restarted, "degraded" comes and goes; with "notice" the node does its whole task,
  /// but not as well as it could.
  std::string_view severity;
  /// A machine-readable word, the same as in metrics that have it.
  std::string reason;
  std::string text;
  /// "docs/operations.md#…"
  std::string runbook;
};

/// How much of the history a status has: nothing, the last hour by ten seconds, or the last six hours by minutes.
enum class history_span : std::uint8_t { none, hour, six_hours };

/// The whole status of a node in one document.
struct status_report {
  program_facts program;
  std::uint32_t protocol = 0;
  std::string node_name;
  std::string data_dir;
  std::string durability;
  /// The process id.
  std::int64_t process = 0;
  /// In seconds since 1970.
  std::int64_t now = 0;
  std::int64_t started = 0;
  duration uptime{};
  result<void> ready;
  std::vector<warning> warnings;

  /// For people: the kind of memory, the way slabs are read.
  std::string memory_text;
  std::string slabs_text;
  std::uint64_t arena_bytes = 0;
  io::extent_counts extents;
  std::uint64_t extent_bytes = 0;
  /// `registry.memory_bytes` and `storage.disk_bytes`, and how much of each is used.
  std::uint64_t index_bytes = 0;
  std::uint64_t index_limit = 0;
  std::uint64_t made_slabs_bytes = 0;
  std::uint64_t made_slabs_limit = 0;

  node_stats stats;
  std::vector<namespace_info> namespaces;
  /// Whether LMCache's clients are served, the first of them, and their total number.
  bool serves_lmcache = false;
  std::vector<lmcache::client_info> lmcache_clients;
  std::uint64_t lmcache_clients_connected = 0;
  /// Null if no events are published.
  std::shared_ptr<const events::counters> events;

  activity_totals totals;
  /// Totals of about a minute ago; the current ones if there are none.
  activity_totals before;
  duration since_before{};
  /// Slabs that are damaged.
  std::vector<std::pair<namespace_id, rank_number>> damaged{};
  /// None if they were not requested; and the time between two of them.
  std::deque<history::sample> samples;
  history_span span = history_span::hour;
};

/// The totals that the history samples.
activity_totals totals_of(const node_stats& stats, const std::vector<namespace_info>& namespaces,
                          const request_latencies& latencies);

/// Adds notices that follow from a node's numbers and have no other source.
void add_notices(std::vector<warning>& to, const status_report& x, const opened_parts& opened);

/// No more namespaces and ranks are listed than `/metrics` lists by name; the rest is counted.
inline constexpr std::size_t namespaces_most = 64;
inline constexpr std::size_t ranks_most = 512;
inline constexpr std::size_t clients_most = 256;

/// The document of `/v1/status`. openapi.json describes it.
std::string status_text(status_report x);

} // namespace troupe::http::node_status
