#pragma once

#include "connector/types.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace troupe::connector {

/// Joins what the workers of an engine report after a step, as the engine's scheduler wants it: a request counts as
/// sent or received when so many workers have named it, which may take several steps; a block that one worker could not
/// load is not loaded, and its request is said to have failed when it is received.
class output_aggregator {
public:
  /// `workers`: `scheduler_half::get_finished_count`.
  explicit output_aggregator(std::uint32_t workers) : workers_(workers) {}

  /// Outputs of the same step, of each worker that took part in it.
  worker_output aggregate(std::span<const worker_output> outputs);

  /// Requests that some workers have named and others not.
  std::size_t waiting() const noexcept { return sent_.size() + received_.size(); }

private:
  using counts = std::unordered_map<std::string, std::uint32_t>;

  std::uint32_t workers_;
  counts sent_;
  counts received_;
  /// Of `received_`.
  std::unordered_set<std::string> failed_;
};

} // namespace troupe::connector
