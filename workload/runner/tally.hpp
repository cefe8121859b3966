#pragma once

#include "messages/transfer_messages.hpp"
#include "workload/replay/latency.hpp"
#include "workload/replay/report.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

namespace troupe::replay {

enum class transfer_kind : std::uint8_t { load, save };

struct lookup_ended {
  duration took{};
};

struct transfer_began {
  transfer_kind kind = transfer_kind::load;
  timestamp at{};
};

/// The end of a load of some pages, and of their comparison.
struct load_ended {
  timestamp began{};
  timestamp ended{};
  /// Pages that are right, that are wrong, and that were not loaded.
  std::uint64_t right = 0;
  std::uint64_t wrong = 0;
  std::uint64_t missing = 0;
  /// Why these were not.
  failure_codes codes{};
  duration comparing{};
  /// How many of the first two were read from a slab.
  std::uint64_t from_disk = 0;
  /// A description of the first wrong byte.
  std::string first_wrong;
  transfer_timing timing;
  /// Bytes that the coordinator moved.
  std::uint64_t bytes = 0;
};

struct save_ended {
  timestamp began{};
  timestamp ended{};
  /// Pages that were written, and pages that no writer has stored.
  std::uint64_t written = 0;
  std::uint64_t failures = 0;
  failure_codes codes{};
  /// The node refused some because of a damaged slab.
  bool slab_damaged = false;
  transfer_timing timing;
  std::uint64_t bytes = 0;
};

/// Blocks were filled, as by a forward pass.
struct blocks_produced {
  duration took{};
  std::uint64_t pages = 0;
};

struct request_ended {
  std::uint64_t blocks = 0;
  std::uint64_t hit_blocks = 0;
};

/// The run cannot continue.
struct run_abandoned {
  error why;
};

/// The reports of replayers.
using run_event =
    std::variant<lookup_ended, transfer_began, load_ended, save_ended, blocks_produced, request_ended, run_abandoned>;

/// Sums up the work of a run's replayers, and assigns its requests, in order and each of them once. One thread.
class tally {
public:
  /// For the requests [first, end) of a run; `compared`: whether blocks are compared.
  tally(std::uint64_t first, std::uint64_t end, std::uint64_t page_bytes, bool compared);

  /// The next request; none where all have begun, or the run was cancelled.
  std::optional<std::uint64_t> next() noexcept;

  void note(const run_event& event);

  /// Must be called first. Carries over errors that an earlier part of the run has found, and nothing else.
  void begin_after(const tally& earlier);

  /// Cancels the run: no further request begins. The first reason counts.
  void abandon(const error& why);
  const std::optional<error>& abandoned() const noexcept { return abandoned_; }

  replay_progress progress(duration elapsed) const noexcept;

  /// The report, without the times of the whole process.
  replay_report report(timestamp now) const;
  const phase_times& phases() const noexcept { return phases_; }
  bool slab_damaged() const noexcept { return slab_damaged_; }
  /// A description of the first wrong page; empty if there was none.
  const std::string& first_wrong() const noexcept { return first_wrong_; }

private:
  void add(const lookup_ended& x);
  void add(const transfer_began& x);
  void add(const load_ended& x);
  void add(const save_ended& x);
  void add(const blocks_produced& x);
  void add(const request_ended& x);
  void add(const run_abandoned& x);

  const std::uint64_t requests_;
  const std::uint64_t end_;
  const std::uint64_t page_bytes_;
  std::uint64_t next_;
  std::optional<error> abandoned_;
  replay_report report_;
  phase_times phases_;
  latency_samples lookup_times_;
  latency_samples load_times_;
  latency_samples save_times_;
  busy_time load_busy_;
  busy_time save_busy_;
  busy_time any_busy_;
  bool slab_damaged_ = false;
  std::string first_wrong_;
};

} // namespace troupe::replay
