#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::lmcache_transfers {

/// Mistakes that can be built in around the rules, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// A commit that carries tensors counts as one whose worker has written into its frames.
  seal_tensors,
  /// Pages count as verified without having been looked at.
  report_unverified,
  /// Tasks of a registration that has ended are not cancelled.
  forget_to_cancel,
  /// When a connection has ended, its worker counts as one without access to frames.
  free_frames_of_the_disconnected,
  /// When the node ends an attachment, its worker counts as one without access to frames.
  free_frames_of_those_sent_away,
  /// The orders of a registration are answered when it ends.
  answer_orders_at_the_end,
  /// The transfers of a registration continue while its attachment ends.
  end_coordinators_last,
  /// The node frees frames that were pinned long ago.
  unpin_after_a_time,
  /// A retrieve is answered at its deadline, even while its blocks are being written.
  answer_while_writing,
  /// A lane counts as done when it begins.
  end_work_early,
  /// Orders are not answered.
  drop_the_end_of_orders,
  /// Tasks that have ended are not noticed.
  lose_the_end_of_tasks,
  /// A hit is one of the group of whole prefixes, whatever the others have.
  look_up_full_group_alone,
  /// A hit needs a chunk less of each window than it does.
  look_up_short_windows,
  /// A state counts as that of the next chunk.
  look_up_states_too_late,
  /// Retrieves bring a chunk less of each window than is needed.
  load_short_windows,
  /// Chunks of windows are stored, whatever blocks of them the worker has.
  store_missing_blocks,
  /// What a hit does not need stays leased.
  keep_all_leases,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 18> defect_names{{
    {"seal-tensors", defect::seal_tensors},
    {"tell-unverified", defect::report_unverified},
    {"forget-to-cancel", defect::forget_to_cancel},
    {"free-frames-of-the-disconnected", defect::free_frames_of_the_disconnected},
    {"free-frames-of-those-sent-away", defect::free_frames_of_those_sent_away},
    {"answer-orders-at-the-end", defect::answer_orders_at_the_end},
    {"end-coordinators-last", defect::end_coordinators_last},
    {"unpin-after-a-time", defect::unpin_after_a_time},
    {"answer-while-writing", defect::answer_while_writing},
    {"end-work-early", defect::end_work_early},
    {"drop-the-end-of-orders", defect::drop_the_end_of_orders},
    {"lose-the-end-of-tasks", defect::lose_the_end_of_tasks},
    {"look-up-full-group-alone", defect::look_up_full_group_alone},
    {"look-up-short-windows", defect::look_up_short_windows},
    {"look-up-states-too-late", defect::look_up_states_too_late},
    {"load-short-windows", defect::load_short_windows},
    {"store-missing-blocks", defect::store_missing_blocks},
    {"keep-all-leases", defect::keep_all_leases},
}};

} // namespace troupe::lmcache_transfers
