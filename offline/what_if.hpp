#pragma once

#include "base/digest.hpp"
#include "base/error.hpp"
#include "workload/replay/trace.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// A prediction of how many blocks of a trace a node would find, by number of slots and eviction policy.

namespace troupe::offline {

/// A trace as numbers of keys: equal numbers are equal prefixes.
struct numbered_trace {
  std::string name;
  std::vector<std::vector<std::uint32_t>> requests;
  /// By number.
  std::vector<key_digest> keys;
  std::uint64_t blocks = 0;
  /// Leading blocks of requests that were seen before: the hits of an unlimited cache.
  std::uint64_t repeated = 0;

  double share(std::uint64_t hits) const noexcept;

  /// The keys of one of the requests.
  std::vector<key_digest> keys_of(const std::vector<std::uint32_t>& request) const;
};

numbered_trace number_trace(const replay::trace& what);

/// The hits of leading blocks with knowledge of the future and this capacity: the block whose next use is last is
/// evicted first, and of one request its last block, since kept blocks are useful only up to the first gap.
std::uint64_t optimal_hits(const numbered_trace& what, std::uint64_t capacity);

/// The names of all that `registry.eviction` may be.
std::vector<std::string> every_policy();

struct what_if_options {
  /// In blocks, each with a page on every rank. Empty: powers of two up to the trace's need.
  std::vector<std::uint64_t> capacities;
  /// The names of `registry.eviction`.
  std::vector<std::string> policies = every_policy();
  std::uint32_t shards = 1;
  /// The world size. A capacity is that of each rank.
  std::uint32_t ranks = 1;
  double low_watermark = 0;
  double high_watermark = 0;
};

struct what_if_report {
  struct row {
    /// A policy, or `optimum`.
    std::string name;
    /// One per capacity.
    std::vector<std::uint64_t> hits;
    std::vector<double> seconds;
  };
  static constexpr const char* optimum = "optimum";

  std::string trace;
  std::uint32_t ranks = 1;
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;
  std::uint64_t different = 0;
  std::uint64_t repeated = 0;
  std::vector<std::uint64_t> capacities;
  std::vector<row> rows;

  double ratio(std::uint64_t hits) const noexcept;
};

/// Calls `progress` with the next simulation. Error: `invalid_argument` (no such policy, or a capacity that no rank can
/// have).
result<what_if_report> what_if(const replay::trace& what, const what_if_options& options,
                               const std::function<void(const std::string&)>& progress);

/// The report as a table.
std::string to_text(const what_if_report& report);
/// The report as one JSON object.
std::string to_json(const what_if_report& report);
/// The curves as a self-contained picture: hit ratio by capacity, in light and dark mode.
std::string to_svg(const what_if_report& report);

} // namespace troupe::offline
