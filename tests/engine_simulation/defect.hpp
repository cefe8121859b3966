#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::engine_simulation {

/// Mistakes that can be built into the halves that stand around the rules, to prove that the checks find them. Most are
/// mistakes that connectors have really made.
enum class defect : std::uint8_t {
  none,
  /// Blocks of preempted requests are overwritten without waiting for copies in progress.
  forget_preemption_wait,
  /// The blocks of a resumed request are added to those that it had.
  resume_appends_blocks,
  /// A page is saved when its tokens are scheduled for a later step.
  store_before_computed,
  /// A load that failed is reported as any other.
  swallow_load_errors,
  /// Blocks that were not filled are reported one step after their request.
  late_load_errors,
  /// A request that leaves during its load is named in both lists.
  both_lists,
  /// A request that leaves is named as sent while it is being copied.
  sent_early,
  /// A request that leaves is never named.
  never_sent,
  /// The leases of a lookup are not released.
  leak_lease,
  /// A load is ordered once more when it has ended.
  load_twice,
  /// Blocks that the engine has computed itself are loaded as well.
  load_over_computed,
  /// A load begins one block early.
  shifted_load,
  /// A store is ordered twice.
  store_twice,
  /// Blocks of a request that leaves during its load are free at once.
  free_during_load,
  /// Adapters and salts are not part of the key.
  forget_scope,
  /// A request counts as received when one worker has named it.
  one_worker_is_enough,
  /// Blocks that the engine has freed count as blocks that it has.
  forget_holes,
  /// The event of the engine's stream does not reach the copies: for a save, for a load.
  forget_save_event,
  forget_load_event,
  /// Preemptions are dealt with behind the forward pass, when others have written the blocks.
  late_preemption,
  /// Saves that are to begin behind the reports of their step do not.
  lose_late_saves,
  /// A request whose load has failed is named as received only.
  forget_failed_requests,
  /// The forward pass does not wait for the loads that it needs.
  forget_synchronous_wait,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 23> defect_names{{
    {"forget-preemption-wait", defect::forget_preemption_wait},
    {"resume-appends-blocks", defect::resume_appends_blocks},
    {"store-before-computed", defect::store_before_computed},
    {"swallow-load-errors", defect::swallow_load_errors},
    {"late-load-errors", defect::late_load_errors},
    {"both-lists", defect::both_lists},
    {"sent-early", defect::sent_early},
    {"never-sent", defect::never_sent},
    {"leak-lease", defect::leak_lease},
    {"load-twice", defect::load_twice},
    {"load-over-computed", defect::load_over_computed},
    {"shifted-load", defect::shifted_load},
    {"store-twice", defect::store_twice},
    {"free-during-load", defect::free_during_load},
    {"forget-scope", defect::forget_scope},
    {"one-worker-is-enough", defect::one_worker_is_enough},
    {"forget-holes", defect::forget_holes},
    {"forget-save-event", defect::forget_save_event},
    {"forget-load-event", defect::forget_load_event},
    {"late-preemption", defect::late_preemption},
    {"lose-late-saves", defect::lose_late_saves},
    {"forget-failed-requests", defect::forget_failed_requests},
    {"forget-synchronous-wait", defect::forget_synchronous_wait},
}};

constexpr std::string_view to_string(defect x) noexcept {
  for (const auto& [name, which] : defect_names)
    if (which == x)
      return name;
  return "none";
}

} // namespace troupe::engine_simulation
