#pragma once

#include "actors/node/supervisor/node_start.hpp"
#include "base/error.hpp"
#include "http/status/program_facts.hpp"
#include "io/extent_source.hpp"
#include "lmcache/client_list.hpp"
#include "messages/messages.hpp"
#include "metrics/history.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http::node_status {

/// Something that the person who runs the node should know, with the way out.
struct warning {
  /// "failed" lasts until the node is started again, "degraded" comes and goes; with "notice" the node does all that it
  /// is there for, and less well than it could.
  std::string_view severity;
  /// A word, as it stands in metrics where it is in them.
  std::string reason;
  std::string text;
  /// "docs/operations.md#…"
  std::string runbook;
};

/// All that is told of a node in one document.
struct status_report {
  program_facts program;
  std::uint32_t protocol = 0;
  std::string node_name;
  std::string data_dir;
  std::string durability;
  /// Of the process.
  std::int64_t process = 0;
  /// In seconds since 1970.
  std::int64_t now = 0;
  std::int64_t started = 0;
  duration uptime{};
  result<void> ready;
  std::vector<warning> warnings;

  /// For people: in what the memory lies, how slabs are read.
  std::string memory_text;
  std::string slabs_text;
  std::uint64_t arena_bytes = 0;
  io::extent_counts extents;
  std::uint64_t extent_bytes = 0;
  /// `registry.memory_bytes` and `storage.disk_bytes`, and what is taken of them.
  std::uint64_t index_bytes = 0;
  std::uint64_t index_limit = 0;
  std::uint64_t made_slabs_bytes = 0;
  std::uint64_t made_slabs_limit = 0;

  node_stats stats;
  std::vector<namespace_info> spaces;
  /// Where LMCache's clients are served: the first of them, and how many there are in all.
  bool serves_lmcache = false;
  std::vector<lmcache::client_info> lmcache_clients;
  std::uint64_t lmcache_clients_connected = 0;

  activity_totals totals;
  /// Of about a minute ago; those of now where there are none.
  activity_totals before;
  duration since_before{};
  /// Nothing where they were not asked for.
  std::deque<history::sample> samples;
  bool with_history = true;
};

/// What a history is kept of.
activity_totals totals_of(const node_stats& stats, const std::vector<namespace_info>& spaces,
                          const request_latencies& latencies);

/// What can be seen of a node's numbers that nobody else warns of.
void add_notices(std::vector<warning>& to, const status_report& x, const opened_parts& opened);

/// No more namespaces and ranks are listed than `/metrics` has with names of their own; the rest is counted.
inline constexpr std::size_t spaces_most = 64;
inline constexpr std::size_t ranks_most = 512;
inline constexpr std::size_t clients_most = 256;

/// The document of `/v1/status`. openapi.json describes it.
std::string status_text(status_report x);

} // namespace troupe::http::node_status
