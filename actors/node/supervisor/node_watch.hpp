#pragma once

#include "base/clock.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "base/write_gate.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Looks now and then at what a node shares and no actor owns, and tells the node's condition: its memory, and its log.
/// Plain rules; what to look at and the time are arguments.
class node_watch {
public:
  /// How long a node is said to lose lines of its log after it lost one: longer than scrapers of metrics pause, so that
  /// each of them sees it.
  static constexpr duration log_memory = std::chrono::minutes(1);

  /// Neither may be null, but the gate: whether the data directory may be written.
  node_watch(std::shared_ptr<node_condition> condition, shared_budget memory,
             std::shared_ptr<const write_gate> gate = nullptr)
      : condition_(std::move(condition)), memory_(std::move(memory)), gate_(std::move(gate)) {}

  /// `dropped`: lines of the log that were ever dropped. What has begun or ended since the last look, for the log.
  std::vector<std::string> look(std::uint64_t dropped, timestamp now);

private:
  void note(trouble what, bool is_so, std::string text, std::vector<std::string>& changes);

  std::shared_ptr<node_condition> condition_;
  shared_budget memory_;
  std::shared_ptr<const write_gate> gate_;
  std::uint64_t dropped_ = 0;
  timestamp last_drop_{};
};

} // namespace troupe
