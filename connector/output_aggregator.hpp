#pragma once

#include "connector/types.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace troupe::connector {

/// Joins the reports of an engine's workers after a step for the engine's scheduler. A request counts as sent or
/// received when `workers` workers have named it, which may take several steps. A block that one worker could not load
/// counts as not loaded, and its request is reported as failed when it is received.
class output_aggregator {
public:
  /// `workers`: `scheduler_half::get_finished_count`.
  explicit output_aggregator(std::uint32_t workers) : workers_(workers) {}

  /// `outputs`: those of one step, of each worker that took part in it.
  worker_output aggregate(std::span<const worker_output> outputs);

  /// The number of requests that only a part of the workers has named.
  std::size_t waiting() const noexcept { return sent_.size() + received_.size(); }

private:
  using counts = std::unordered_map<std::string, std::uint32_t>;

  std::uint32_t workers_;
  counts sent_;
  counts received_;
  /// Those of `received_` that failed on a worker.
  std::unordered_set<std::string> failed_;
};

} // namespace troupe::connector
