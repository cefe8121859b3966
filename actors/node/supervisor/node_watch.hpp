#pragma once

#include "actors/support/node_condition.hpp"
#include "base/clock.hpp"
#include "base/memory_budget.hpp"
#include "base/write_gate.hpp"
#include "io/memory/extent_source.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A periodic check of shared resources that no actor owns, such as memory and the log, which reports to the node's
/// condition. Plain rules; the measured values and the time are arguments.
class node_watch {
public:
  /// The time for which a lost log line is reported. It is longer than the interval of metrics scrapers, so that each
  /// of them sees it.
  static constexpr duration log_memory = std::chrono::minutes(1);

  /// The time that a node may be without any memory for pages before it is degraded: the host is clearing the memory.
  static constexpr duration first_memory = std::chrono::seconds(10);

  /// `condition` and `memory` must not be null. `gate`: whether the data directory may be written.
  /// `extents`: the memory for pages; null: not watched.
  node_watch(std::shared_ptr<node_condition> condition, shared_budget memory,
             std::shared_ptr<const write_gate> gate = write_gate::always_open(),
             std::shared_ptr<const io::extent_source> extents = nullptr)
      : condition_(std::move(condition)), memory_(std::move(memory)), gate_(std::move(gate)),
        extents_(std::move(extents)) {}

  /// `dropped`: the number of log lines ever dropped. Returns what has begun or ended since the last check, for the
  /// log.
  std::vector<std::string> look(std::uint64_t dropped, timestamp now);

  /// The client slots. Disconnected clients that may still access the node's memory occupy slots as well.
  struct places {
    std::size_t attached = 0;
    std::size_t disconnected = 0;
    std::size_t most = 0;
    /// The processes of the disconnected clients, as text.
    std::string processes;
  };
  /// Checks whether disconnected clients prevent new attachments. Returns what has begun or ended since the last check,
  /// for the log.
  std::vector<std::string> look(const places& of_clients);

private:
  /// The problem with the memory for pages; empty if there is none.
  std::string lack_of_extents(timestamp now);
  void note(trouble what, bool is_so, std::string text, std::vector<std::string>& changes);

  std::shared_ptr<node_condition> condition_;
  shared_budget memory_;
  std::shared_ptr<const write_gate> gate_;
  std::shared_ptr<const io::extent_source> extents_;
  /// The time of the first check.
  timestamp begun_{};
  std::uint64_t dropped_ = 0;
  timestamp last_drop_{};
};

} // namespace troupe
