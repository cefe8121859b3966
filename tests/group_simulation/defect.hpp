#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::group_simulation {

/// Mistakes that can be built in around the rules, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// A hit is that of the groups of full attention alone.
  full_alone,
  /// A window is one block shorter than the engine's.
  short_window,
  /// The tokens behind a window that the engine needs as well do not count.
  forget_extra,
  /// A chunk counts as a window.
  chunk_as_window,
  /// A state counts as the one of the next page.
  shifted_state,
  /// An offer of a state is used when the engine has given the block to others.
  late_state,
  /// The lease on the first page of a hit is released.
  retain_too_little,
  /// Leases that are not needed are not released.
  leak_lease,
  /// A lookup ends at the first page that is not found.
  prefix_only,
  /// A hit may cover all tokens of a request.
  whole_request,
  /// A page that one rank has counts as complete.
  one_rank_complete,
  /// Blocks that a window has freed count as blocks of the request.
  stale_tables,
  /// Blocks that are being saved are not held.
  ignore_holds,
  /// They are held until the step has ended.
  release_early,
  /// A save begins in the step after the one that offered its blocks.
  late_save,
  /// The failure of one group's load is not reported.
  forget_failure,
  /// Pages that could not be loaded are reported as loaded; the request is reported as failed.
  offer_again,
  /// Blocks that the engine has computed itself are loaded as well.
  load_over_computed,
  /// The engine's null block is loaded like any other.
  load_null_blocks,
  /// A request counts as received when one worker has named it.
  one_worker_is_enough,
  /// Whatever a fetch from other nodes brought counts as all that it should bring.
  believe_fetches,
  /// A fetch names the pages of a window for the hit without other nodes as well.
  fetch_for_stale_hit,
  /// Leases on fetched pages stay whole when the hit turns out shorter.
  keep_fetched_leases,
  /// What other nodes hold for a search is not released.
  keep_searches,
  /// Some answers about pages of other nodes never come, and lookups have no time limit.
  wait_for_peers,
  /// A hit is that of the first pipeline stage alone.
  stage_alone,
  /// Workers of a stage load the pages of another one.
  swapped_stages,
  /// Workers do not name requests of which other stages load something, and their own nothing.
  silent_stage,
  /// Drafts count as tokens before they are accepted.
  save_drafts,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 29> defect_names{{
    {"full-alone", defect::full_alone},
    {"short-window", defect::short_window},
    {"forget-extra", defect::forget_extra},
    {"chunk-as-window", defect::chunk_as_window},
    {"shifted-state", defect::shifted_state},
    {"late-state", defect::late_state},
    {"retain-too-little", defect::retain_too_little},
    {"leak-lease", defect::leak_lease},
    {"prefix-only", defect::prefix_only},
    {"whole-request", defect::whole_request},
    {"one-rank-complete", defect::one_rank_complete},
    {"stale-tables", defect::stale_tables},
    {"ignore-holds", defect::ignore_holds},
    {"release-early", defect::release_early},
    {"late-save", defect::late_save},
    {"forget-failure", defect::forget_failure},
    {"offer-again", defect::offer_again},
    {"load-over-computed", defect::load_over_computed},
    {"load-null-blocks", defect::load_null_blocks},
    {"one-worker-is-enough", defect::one_worker_is_enough},
    {"believe-fetches", defect::believe_fetches},
    {"fetch-for-stale-hit", defect::fetch_for_stale_hit},
    {"keep-fetched-leases", defect::keep_fetched_leases},
    {"keep-searches", defect::keep_searches},
    {"wait-for-peers", defect::wait_for_peers},
    {"stage-alone", defect::stage_alone},
    {"swapped-stages", defect::swapped_stages},
    {"silent-stage", defect::silent_stage},
    {"save-drafts", defect::save_drafts},
}};

} // namespace troupe::group_simulation
