#pragma once

#include "connector/stats.hpp"
#include "workload/engine_model/options.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::replay {

/// The results of a replay through an engine and its connector.
struct engine_report {
  std::uint64_t requests = 0;
  std::uint64_t requests_aborted = 0;
  std::uint64_t prompt_tokens = 0;
  engine::engine_statistics engine;
  /// The sum over all workers.
  connector::connector_stats connector;
  /// Tokens whose KV was compared before a forward pass read it, one per worker, and those that were wrong.
  std::uint64_t compared_tokens = 0;
  std::uint64_t wrong_tokens = 0;
  /// Violations of the engine's rules; see `engine::violation`.
  std::vector<engine::violation> violations;
  std::uint64_t damaged_pages = 0;
  std::uint32_t workers = 1;
  double seconds = 0;
  double cores = 0;

  bool clean() const noexcept { return wrong_tokens == 0 && violations.empty(); }
};

/// One JSON object on one line.
std::string to_json(const engine_report& report);

/// A table that ends with `verdict`. `title` names the replayed trace.
std::string to_table(const engine_report& report, std::string_view title);

/// One sentence: whether all KV was right.
std::string verdict(const engine_report& report);

} // namespace troupe::replay
