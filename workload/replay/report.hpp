#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "gpu/plain_copy.hpp"
#include "workload/replay/latency.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::replay {

/// The reasons why pages could not be loaded or saved, and of how many.
using failure_codes = std::map<errc, std::uint64_t>;

/// The results of a replay. The fields are the keys of `--json`, in this order.
struct replay_report {
  std::uint64_t requests = 0;
  /// One per hash id.
  std::uint64_t blocks = 0;
  /// Leading blocks of a request that the lookup found.
  std::uint64_t hit_blocks = 0;
  /// One per block and rank.
  std::uint64_t loaded_pages = 0;
  std::uint64_t saved_pages = 0;
  /// Loaded pages that were read from a slab. All others were in memory.
  std::uint64_t loaded_from_disk = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t saved_bytes = 0;
  /// Loaded pages with wrong content.
  std::uint64_t verify_failures = 0;
  /// Pages that could not be loaded, or saved.
  std::uint64_t load_failures = 0;
  std::uint64_t save_failures = 0;
  failure_codes load_failure_codes{};
  failure_codes save_failure_codes{};
  std::uint64_t evicted_keys = 0;
  /// False where blocks were neither filled nor compared.
  bool compared = true;
  double seconds = 0;
  /// Processor seconds of this process per second, including its own node.
  double cores = 0;
  /// 10^9 bytes per second, over the time during which at least one load (save) was in progress.
  double load_gbps = 0;
  double save_gbps = 0;
  /// The speed of loads and saves together, over the time during which at least one was in progress; set where some
  /// overlapped.
  double together_gbps = 0;
  /// The plain copy bandwidth of the GPU, where it was measured.
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

/// The report as a table that ends with `verdict`. `title` names the replayed trace.
std::string to_table(const replay_report& report, std::string_view title);

/// One sentence: whether every byte was right.
std::string verdict(const replay_report& report);

/// The progress of a replay.
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

/// One line without a newline, of at most so many columns: percent, requests, the remaining time at the present rate,
/// failures if any, hits, and bandwidth over the elapsed time. Parts that do not fit are omitted from the right; the
/// rest of the width is a progress bar in front.
std::string progress_line(const replay_progress& progress, std::size_t columns = 160);

/// The steps of a replay, in the order of the table.
enum class phase : std::uint8_t {
  /// Gets the number of complete leading keys.
  lookup,
  /// Gets the locations of their pages.
  locate,
  /// Copies from slab to memory.
  read,
  /// Copies from page to KV cache, with identity and checksum verified.
  scatter,
  /// Compares every byte of the KV cache with its expected value.
  compare,
  /// The engine's forward pass: fills the blocks that were not found.
  produce,
  /// Gets slots to write to.
  reserve,
  /// Copies from KV cache to page, and makes header and checksum.
  gather,
  /// Copies from memory to slab.
  write,
  commit,
  /// Releases the lease.
  release,
};

inline constexpr std::size_t phase_count = static_cast<std::size_t>(phase::release) + 1;

std::string_view to_string(phase p) noexcept;

/// The time by phase: per phase the sum over all requests, and its bytes. With concurrent requests the sums exceed the
/// wall clock. One thread.
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

/// The phases that took time: their description, seconds, share of all phases' time, bytes, GB/s.
std::string to_table(const phase_times& times);

} // namespace troupe::replay
