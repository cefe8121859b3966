#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::simulation {

/// Mistakes that can be built into the parts that stand in for actors, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// An allocator frees slots without waiting for the io worker.
  skip_fence,
  /// A coordinator stops waiting for frames that it has requested, and the answer comes later.
  abandon_frames,
  /// A save commits before the io worker has its pages, or has written them where that is asked for.
  early_commit,
  /// The node does not notify its actors of a client's disconnection.
  forget_death,
  /// The copy engine scatters without looking at the page.
  skip_verify,
  /// A shard's message to an allocator that a reservation was aborted is lost.
  lose_abort,
  /// The io worker answers a batch, and the answer is lost.
  lose_reply,
  /// A shard stops waiting for the slots that it has requested, which then have no owner.
  abandon_slots,
  /// A shard grants leases and forgets them.
  forget_lease,
  /// Messages between a shard and an allocator overtake each other.
  unordered,
  /// The copy engine takes its time, and a load ends before it has finished.
  late_scatter,
  /// A save coordinator answers a cancel, and continues as before.
  ignore_cancel,
  /// A fence is answered while a write-back or a promotion of its slot is under way.
  early_fence,
  /// The death of a client does not end its leases.
  outlive_owner,
  /// A load gives its lease back when it begins to read.
  early_release,
  /// A page that is found damaged gives its slot back although others have leased it.
  reuse_leased,
  /// A save commits what it has reported as failed.
  late_commit,
  /// Reservations last longer than was asked for.
  long_reservations,
  /// A lease that is given back in part keeps one key too many.
  keep_one_more,
  /// A lookup keeps what it has leased beyond its answer.
  forget_trim,
  /// The io worker is not notified of damage to its slab.
  forget_damage,
  /// A load leases its pages for half of the time.
  short_lease,
  /// A shard tells other shards of children after it has given back the slots of these.
  late_children,
  /// A client's pins end with its disconnection, and not when its process has ended.
  quiesce_at_death,
  /// The io worker is not notified that a client is quiesced.
  keep_pins,
  /// A copy engine reports that it is quiesced while copies are in progress.
  early_quiesce,
  /// A frame whose slot is fenced is free at once, be it pinned or not.
  free_orphan,
  /// A page counts as written that is not, and leaves memory.
  unwritten,
  /// Pages are not verified before they are written to the disk.
  skip_check,
  /// A reader gets a frame before the page has been read into it.
  early_promotion,
  /// A fence waits for transfers, and leaves the page where it can be found.
  keep_frame,
  /// The io worker receives a fence after it was answered, and so writes a page whose slot has another owner.
  late_fence,
  /// Two readers of one page get frames of their own.
  double_flight,
  /// A fill is accepted although the slot was fenced.
  stale_fill,
  /// A client ends pins of others.
  foreign_pin,
  /// An extent is assigned to two ranks.
  assign_twice,
  /// The word of a load that it is done with its frames gets lost.
  lose_unpin,
  /// The copy engine looks at the header of a page, and not at its bytes.
  skip_checksum,
  /// The copy engine reports pages as gathered while it still copies.
  late_gather,
  /// A page that is read ahead goes into a frame that a client has pinned.
  prefetch_over_pin,
  /// The io worker is not notified of the end of a prefetch whose lease ended before.
  lose_prefetch,
  /// The io worker is not notified of the end of a lease.
  endless_prefetch,
  /// Shards are not notified of dropped pages.
  silent_loss,
  /// A page with a pending fetch is dropped.
  drop_fetched,
  /// A page without a second request is written.
  write_unasked,
  /// An extent goes back although clients have frames of it pinned.
  give_pinned,
  /// A returned extent is assigned to two ranks.
  hand_to_two,
  /// A page that is nowhere else is dropped when an extent is to go back.
  forget_dirty,
  /// Writes are said to be over while bytes still move.
  early_written,
  /// The result of a scrubbed slot is reported for the page that is there by then.
  scrub_slot,
  /// Keys that another node keeps are not evicted first.
  forget_kept,
  /// Nor are transient keys.
  forget_transient,
  /// Keys that another node keeps are evicted first even if its lease does not have them, or has ended.
  evict_first_without_lease,
  /// Used keys stay evict-first.
  evict_first_for_ever,
  /// A shard evicts for each rank by itself, although a key that goes frees a slot on all of them.
  evict_for_each,

  // In worlds of slot clients:

  /// An allocator frees slots at once whose writers may be late.
  forget_quiesce,
  /// A page whose location was returned is not protected.
  forget_protection,
  /// A restart forgets all protection.
  forget_promises,
  /// A rank that is registered anew gives out slots beside late writers of its old registration.
  forget_old_writers,
  /// Slots are given back before the store has forgotten their pages.
  early_reuse,
  /// A confirmation is answered before the store has it.
  early_answer,
  /// Children hold a key for ever.
  endless_children,
  /// A start believes an index that a run has left aside.
  forget_epoch,
  /// A start takes pages of an earlier registration of a rank for those of the present one.
  forget_incarnation,

  // In worlds of client namespaces:

  /// Files of namespaces that are removed stay.
  keep_files,
  /// Extents of removed namespaces are not returned.
  keep_extents,
  /// A shard is not notified that a namespace is removed.
  half_removed,
  /// The store keeps namespaces that were removed.
  keep_record,
  /// A client's process counts as ended while its devices copy.
  forget_copies,
  /// The end of the actors that served a namespace is not reported.
  lose_close,
  /// A disk reports parts of slots as freed that it has kept.
  lose_trim,
  /// The io worker is not notified which slots of a sparse slab were given disk space.
  forget_granted,
  /// A copy engine writes a page into a frame that is too small for it.
  overrun_frame,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 73> defect_names{{
    {"skip-fence", defect::skip_fence},
    {"abandon-frames", defect::abandon_frames},
    {"early-commit", defect::early_commit},
    {"forget-death", defect::forget_death},
    {"skip-verify", defect::skip_verify},
    {"lose-abort", defect::lose_abort},
    {"lose-reply", defect::lose_reply},
    {"abandon-slots", defect::abandon_slots},
    {"forget-lease", defect::forget_lease},
    {"unordered", defect::unordered},
    {"late-scatter", defect::late_scatter},
    {"ignore-cancel", defect::ignore_cancel},
    {"early-fence", defect::early_fence},
    {"outlive-owner", defect::outlive_owner},
    {"early-release", defect::early_release},
    {"reuse-leased", defect::reuse_leased},
    {"late-commit", defect::late_commit},
    {"long-reservations", defect::long_reservations},
    {"keep-one-more", defect::keep_one_more},
    {"forget-trim", defect::forget_trim},
    {"forget-damage", defect::forget_damage},
    {"short-lease", defect::short_lease},
    {"late-children", defect::late_children},
    {"quiesce-at-death", defect::quiesce_at_death},
    {"keep-pins", defect::keep_pins},
    {"early-quiesce", defect::early_quiesce},
    {"free-orphan", defect::free_orphan},
    {"unwritten", defect::unwritten},
    {"skip-check", defect::skip_check},
    {"early-promotion", defect::early_promotion},
    {"keep-frame", defect::keep_frame},
    {"late-fence", defect::late_fence},
    {"double-flight", defect::double_flight},
    {"stale-fill", defect::stale_fill},
    {"foreign-pin", defect::foreign_pin},
    {"assign-twice", defect::assign_twice},
    {"lose-unpin", defect::lose_unpin},
    {"skip-checksum", defect::skip_checksum},
    {"late-gather", defect::late_gather},
    {"prefetch-over-pin", defect::prefetch_over_pin},
    {"lose-prefetch", defect::lose_prefetch},
    {"endless-prefetch", defect::endless_prefetch},
    {"silent-loss", defect::silent_loss},
    {"drop-fetched", defect::drop_fetched},
    {"write-unasked", defect::write_unasked},
    {"give-pinned", defect::give_pinned},
    {"hand-to-two", defect::hand_to_two},
    {"forget-dirty", defect::forget_dirty},
    {"early-written", defect::early_written},
    {"scrub-slot", defect::scrub_slot},
    {"forget-kept", defect::forget_kept},
    {"forget-transient", defect::forget_transient},
    {"evict-first-without-lease", defect::evict_first_without_lease},
    {"evict-first-for-ever", defect::evict_first_for_ever},
    {"evict-for-each", defect::evict_for_each},
    {"forget-quiesce", defect::forget_quiesce},
    {"forget-protection", defect::forget_protection},
    {"forget-promises", defect::forget_promises},
    {"forget-old-writers", defect::forget_old_writers},
    {"early-reuse", defect::early_reuse},
    {"early-answer", defect::early_answer},
    {"endless-children", defect::endless_children},
    {"forget-epoch", defect::forget_epoch},
    {"forget-incarnation", defect::forget_incarnation},
    {"keep-files", defect::keep_files},
    {"keep-extents", defect::keep_extents},
    {"half-removed", defect::half_removed},
    {"keep-record", defect::keep_record},
    {"forget-copies", defect::forget_copies},
    {"lose-close", defect::lose_close},
    {"lose-trim", defect::lose_trim},
    {"forget-granted", defect::forget_granted},
    {"overrun-frame", defect::overrun_frame},
}};

constexpr std::string_view to_string(defect x) noexcept {
  for (const auto& [name, which] : defect_names)
    if (which == x)
      return name;
  return "none";
}

} // namespace troupe::simulation
