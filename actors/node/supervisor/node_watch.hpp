#pragma once

#include "base/clock.hpp"
#include "base/memory_budget.hpp"
#include "base/node_condition.hpp"
#include "base/write_gate.hpp"
#include "io/extent_source.hpp"

#include <cstddef>
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

  /// For so long a node may be without any memory for pages before it is degraded: the host is clearing it.
  static constexpr duration first_memory = std::chrono::seconds(10);

  /// Condition and memory may not be null. `gate`: whether the data directory may be written; null: always. `extents`:
  /// the memory for pages; null: none is watched.
  node_watch(std::shared_ptr<node_condition> condition, shared_budget memory,
             std::shared_ptr<const write_gate> gate = nullptr,
             std::shared_ptr<const io::extent_source> extents = nullptr)
      : condition_(std::move(condition)), memory_(std::move(memory)), gate_(std::move(gate)),
        extents_(std::move(extents)) {}

  /// `dropped`: lines of the log that were ever dropped. What has begun or ended since the last look, for the log.
  std::vector<std::string> look(std::uint64_t dropped, timestamp now);

  /// The places of clients, which those take as well that have disconnected and may still touch the node's memory.
  struct places {
    std::size_t attached = 0;
    std::size_t departed = 0;
    std::size_t most = 0;
    /// Which processes the departed are, for people.
    std::string processes;
  };
  /// Whether clients that have departed keep others out. What has begun or ended since the last look, for the log.
  std::vector<std::string> look(const places& of_clients);

private:
  /// What is wrong with the memory for pages; empty if nothing is.
  std::string lack_of_extents(timestamp now);
  void note(trouble what, bool is_so, std::string text, std::vector<std::string>& changes);

  std::shared_ptr<node_condition> condition_;
  shared_budget memory_;
  std::shared_ptr<const write_gate> gate_;
  std::shared_ptr<const io::extent_source> extents_;
  /// The first look.
  timestamp begun_{};
  std::uint64_t dropped_ = 0;
  timestamp last_drop_{};
};

} // namespace troupe
