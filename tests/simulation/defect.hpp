#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe::simulation {

/// Mistakes that can be built into the parts that stand in for actors, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// An allocator frees slots without waiting for the io worker.
  skip_fence,
  /// A coordinator gives up on reads and writes, and so reuses page buffers that are still in use.
  early_buffer,
  /// A save commits before its write has ended.
  early_commit,
  /// The node does not tell anybody that a client is gone.
  forget_death,
  /// The copy engine scatters without looking at the page.
  skip_verify,
  /// A shard's word to an allocator that a reservation was given up gets lost.
  lose_abort,
  /// The io worker answers a batch, and the answer is lost.
  lose_reply,
  /// A shard stops waiting for the slots it has asked for, which then belong to nobody.
  abandon_slots,
  /// A shard grants leases and forgets them.
  forget_lease,
  /// Messages between a shard and an allocator overtake each other.
  unordered,
  /// The copy engine takes its time, and a load ends before it has finished.
  late_scatter,
  /// A save coordinator answers a cancel, and goes on as before.
  ignore_cancel,
  /// The memory of a client that has died is given up at once, be it in use or not.
  drop_memory,
  /// A fence ends with the first of several transfers of a slot.
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
  /// The io worker is not told that its slab is damaged.
  forget_damage,
  /// A load leases its pages for half of the time.
  short_lease,
  /// A shard tells other shards of children after it has given back the slots of these.
  late_children,

  // In worlds of slot clients:

  /// An allocator frees slots at once whose writers may be late.
  forget_rest,
  /// A page whose location was told is not kept.
  forget_protection,
  /// A restart forgets that anybody was promised anything.
  forget_promises,
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
};

inline constexpr std::array<std::pair<std::string_view, defect>, 32> defect_names{{
    {"skip-fence", defect::skip_fence},
    {"early-buffer", defect::early_buffer},
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
    {"drop-memory", defect::drop_memory},
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
    {"forget-rest", defect::forget_rest},
    {"forget-protection", defect::forget_protection},
    {"forget-promises", defect::forget_promises},
    {"early-reuse", defect::early_reuse},
    {"early-answer", defect::early_answer},
    {"endless-children", defect::endless_children},
    {"forget-epoch", defect::forget_epoch},
    {"forget-incarnation", defect::forget_incarnation},
}};

constexpr std::optional<defect> find_defect(std::string_view name) noexcept {
  for (const auto& [known, which] : defect_names)
    if (known == name)
      return which;
  return std::nullopt;
}

constexpr std::string_view to_string(defect x) noexcept {
  for (const auto& [name, which] : defect_names)
    if (which == x)
      return name;
  return "none";
}

} // namespace troupe::simulation
