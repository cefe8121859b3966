#pragma once

#include "base/digest.hpp"
#include "base/error.hpp"
#include "workload/replay/trace.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// How many blocks of a trace a node would find, had it so many slots and that eviction policy.

namespace troupe::offline {

/// A trace as numbers of keys: equal numbers are equal prefixes.
struct numbered_trace {
  std::string name;
  std::vector<std::vector<std::uint32_t>> requests;
  /// By number.
  std::vector<key_digest> keys;
  std::uint64_t blocks = 0;
  /// Blocks that stand at the beginning of their request and were seen before: what a cache without end finds.
  std::uint64_t repeated = 0;

  double share(std::uint64_t hits) const noexcept;
};

numbered_trace number_trace(const replay::trace& what);

/// Leading blocks that are found by who knows the future and has room for so many: who is asked for again last goes
/// first, and of one request its last block, as what is kept is of use up to its first gap.
std::uint64_t optimal_hits(const numbered_trace& what, std::uint64_t capacity);

struct what_if_options {
  /// In blocks, each a page on every rank. Empty: the next powers of two up to what the trace needs.
  std::vector<std::uint64_t> capacities;
  /// As `registry.eviction` names them.
  std::vector<std::string> policies{"lru", "s3-fifo", "reuse"};
  std::uint32_t shards = 1;
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
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;
  std::uint64_t different = 0;
  std::uint64_t repeated = 0;
  std::vector<std::uint64_t> capacities;
  std::vector<row> rows;

  double ratio(std::uint64_t hits) const noexcept;
};

/// `progress` is told what is played next. Errors: invalid_argument (no such policy, or a capacity that no rank can
/// have).
result<what_if_report> what_if(const replay::trace& what, const what_if_options& options,
                               const std::function<void(const std::string&)>& progress);

/// A table, for people.
std::string to_text(const what_if_report& report);
/// One object, for programs.
std::string to_json(const what_if_report& report);
/// The curves, as a picture that needs nothing else: hit ratio by capacity, light and dark.
std::string to_svg(const what_if_report& report);

} // namespace troupe::offline
