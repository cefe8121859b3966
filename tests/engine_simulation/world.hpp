#pragma once

#include "base/digest.hpp"
#include "tests/engine_simulation/defect.hpp"
#include "tests/engine_simulation/plan.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::engine_simulation {

/// Outcomes that are counted, to know what a range of seeds has seen.
enum class seen : std::uint8_t {
  lookup_found,
  lookup_found_nothing,
  lookup_failed,
  lookup_answer_late,
  lookup_answer_lost,
  lease_ran_out,
  lease_returned,
  save_ok,
  save_exists,
  save_busy,
  save_full,
  save_io_error,
  save_timeout,
  save_unreachable,
  save_cancelled,
  cancel_before_copy,
  cancel_during_copy,
  cancel_after_copy,
  waited_for_cancel,
  load_ok,
  load_not_found,
  load_io_error,
  load_corrupt,
  load_timeout,
  load_unreachable,
  load_of_computed_page,
  page_evicted,
  node_killed,
  node_lost_index,
  cache_reset,
  late_output_of_preempted,
  preemption,
  preemption_with_store,
  load_after_preemption,
  load_again,
  load_failed_in_part,
  load_failed_as_a_whole,
  abort_waiting,
  abort_during_load,
  abort_running,
  finish_kept_for_store,
  finish_kept_for_load,
  hit_without_blocks,
  hit_declined,
  hit_passed_over,
  drafts_rejected,
  name_used_again,
  step_without_tokens,
  store_retried,
  shut_down_while_busy,
  copy_waited_for_event,
  hole_not_stored,
  waited_for_load,
  synchronous_load,
  synchronous_load_failed,
  shared_load_failed,
  request_failed,
  prefix_cache_reset,
  prefix_cache_kept,
  back_in_the_same_step,
  count_of_them,
};
inline constexpr std::size_t seen_count = static_cast<std::size_t>(seen::count_of_them);
std::string_view to_string(seen x) noexcept;

using tally = std::array<std::uint64_t, seen_count>;

/// Kinds of random numbers, so that one does not say what another will be.
enum class dice : std::uint8_t {
  hook,
  lookup_delay,
  lookup_fault,
  task_delay,
  task_fault,
  cancel_delay,
  torn,
  on_disk,
  forward_delay,
};

/// State that all parts of a simulated run share.
class world {
public:
  world(const plan& of, defect which, bool verbose) : p(of), built_in(which), verbose_(verbose) {}

  const plan& p;
  const defect built_in;
  std::uint32_t step = 0;
  std::array<std::uint32_t, fault_count> rates{};

  bool has(defect which) const noexcept { return built_in == which; }
  bool verbose() const noexcept { return verbose_; }

  timestamp now() const noexcept { return now_; }
  void set_time(timestamp to) noexcept { now_ = to; }

  /// A random number that depends on its purpose and not on earlier draws, so that leaving something out of a run
  /// changes little of the rest.
  std::uint64_t draw(dice kind, std::uint64_t a, std::uint64_t b = 0) const noexcept {
    auto x = mix(p.seed ^ (static_cast<std::uint64_t>(kind) << 56), mix(a, b));
    x ^= x >> 32;
    return x * 0x9e3779b97f4a7c15ULL >> 16;
  }
  bool strikes(fault which, std::uint64_t a, std::uint64_t b = 0) const noexcept {
    const auto rate = rates[static_cast<std::size_t>(which)];
    return rate > 0 &&
           draw(dice::task_fault, a, b * fault_count + static_cast<std::uint64_t>(which)) % 1'000'000 < rate;
  }

  /// One event of the trace: goes into the hash, and to stdout if verbose.
  void trace(std::string_view what, std::string_view who, std::uint64_t a = 0, std::uint64_t b = 0);
  std::uint64_t trace_hash() const noexcept { return hash_; }

  void count(seen what, std::uint64_t n = 1) noexcept { counts_[static_cast<std::size_t>(what)] += n; }
  const tally& counts() const noexcept { return counts_; }

  /// A property is broken. The first one stays.
  void fail(std::string_view property, std::string text);
  bool failed() const noexcept { return !property_.empty(); }
  const std::string& property() const noexcept { return property_; }
  const std::string& failure() const noexcept { return failure_; }

private:
  bool verbose_;
  timestamp now_ = timestamp(std::chrono::hours(1));
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
  tally counts_{};
  std::string property_;
  std::string failure_;
};

} // namespace troupe::engine_simulation
