#pragma once

#include "base/clock.hpp"
#include "gpu/plain_copy.hpp"
#include "workload/replay/latency.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::replay {

/// What a replay did. The fields are the keys of `--json`, in this order.
struct replay_report {
  std::uint64_t requests = 0;
  /// One per hash id.
  std::uint64_t blocks = 0;
  /// Leading blocks of a request that the lookup found.
  std::uint64_t hit_blocks = 0;
  /// One per block and rank.
  std::uint64_t loaded_pages = 0;
  std::uint64_t saved_pages = 0;
  /// Of the loaded pages: those that had to be read from a slab. All others were in memory.
  std::uint64_t loaded_from_disk = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t saved_bytes = 0;
  /// Loaded pages that did not hold what they must.
  std::uint64_t verify_failures = 0;
  /// Pages that could not be loaded, or saved.
  std::uint64_t load_failures = 0;
  std::uint64_t save_failures = 0;
  std::uint64_t evicted_keys = 0;
  /// False where blocks were neither filled nor compared.
  bool compared = true;
  double seconds = 0;
  /// Processor seconds of this process per second, its own node included.
  double cores = 0;
  /// 10^9 bytes per second, over the time during which at least one load (save) was under way.
  double load_gbps = 0;
  double save_gbps = 0;
  /// Of loads and saves together, over the time during which both were under way or one of them; where some were at
  /// once.
  double together_gbps = 0;
  /// The GPU's, where its pace is what was to be measured.
  std::optional<plain_copy_pace> plain_copy;
  latency_summary lookup_us;
  latency_summary load_us;
  latency_summary save_us;

  std::uint64_t loaded_from_memory() const noexcept { return loaded_pages - loaded_from_disk; }

  /// hit_blocks / blocks; 0 without blocks.
  double hit_ratio() const noexcept;

  /// True where every loaded page was right and nothing failed.
  bool clean() const noexcept { return verify_failures == 0 && load_failures == 0 && save_failures == 0; }
};

/// The report as one JSON object on one line.
std::string to_json(const replay_report& report);

/// The report as a table for people, ending with `verdict`. `title` says what was replayed.
std::string to_table(const replay_report& report, std::string_view title);

/// One sentence: whether every byte was right.
std::string verdict(const replay_report& report);

/// How far a replay is.
struct replay_progress {
  std::uint64_t requests_done = 0;
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t saved_bytes = 0;
  /// Pages that failed in any way.
  std::uint64_t failures = 0;
  duration elapsed{};
};

/// One line without a newline, of at most so many columns: percent, requests, the time to go at the pace so far,
/// failures where there are any, hits, and bandwidth over the elapsed time. What does not fit is left out from the
/// right; what is left of the width goes to a bar in front.
std::string progress_line(const replay_progress& progress, std::size_t columns = 160);

/// The steps of a replay, in the order of the table.
enum class phase : std::uint8_t {
  /// How many leading keys are complete.
  lookup,
  /// Where their pages are.
  locate,
  /// Slab → memory.
  read,
  /// Page → KV cache, identity and checksum checked.
  scatter,
  /// Every byte of the KV cache against what the key must hold.
  compare,
  /// The engine's forward pass: fills the blocks that were not found.
  produce,
  /// Slots to write to.
  reserve,
  /// KV cache → page, header and checksum made.
  gather,
  /// Memory → slab.
  write,
  commit,
  /// Gives the lease back.
  release,
};

inline constexpr std::size_t phase_count = static_cast<std::size_t>(phase::release) + 1;

std::string_view to_string(phase p) noexcept;

/// Where the time goes: per phase the sum over all requests, and the bytes it handled. With several requests at once
/// the sums exceed the wall clock. One thread.
class phase_times {
public:
  void add(phase p, duration d, std::uint64_t bytes = 0) noexcept;

  duration time(phase p) const noexcept;
  std::uint64_t bytes(phase p) const noexcept;
  duration total() const noexcept;

private:
  struct tally {
    duration time{};
    std::uint64_t bytes = 0;
  };
  std::array<tally, phase_count> entries_{};
};

/// Phases that took time: what they do, seconds, share of all phases' time, bytes, GB/s.
std::string to_table(const phase_times& times);

} // namespace troupe::replay
