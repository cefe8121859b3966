#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace troupe::handshake_simulation {

/// Mistakes that can be built in around the rules, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// Data of an earlier incarnation is still returned.
  keep_old_ranks,
  /// A publication that comes late counts as one of the incarnation that lives.
  take_late_publications,
  /// The directory does not look at its clock.
  forget_directory_time,
  /// Waiting requests are not notified of one change in four.
  lose_wakeups,
  /// Changes are answered before they are durable.
  answer_before_durable,
  /// A restarted directory has forgotten withdrawn engines.
  forget_the_withdrawn,
  /// A directory that starts takes engines to live from then on.
  restart_deadlines,
  /// Hashes are not compared.
  ignore_hashes,
  /// A request for some ranks gets all.
  ignore_scopes,
  /// A requester that disconnected still counts against the limit of waits.
  keep_the_gone,
  /// A client sends what it fetches twice.
  fetch_twice,
  /// A client takes what it knows for any incarnation.
  stale_cache,
  /// A client does not look at its clock.
  forget_client_time,
  /// A client asks for its watch once.
  watch_once,
  /// A client does not notice that its listener has ended, nor that the directory behind it does not answer.
  keep_the_connection,
  /// Readers get changes that are not durable yet.
  report_before_durable,
  /// Lists have publications that are not durable yet.
  list_before_durable,
  /// Readers get deadlines that heartbeats have moved before these are durable.
  report_moved_deadlines,
  /// The directory takes whatever is published.
  ignore_limits,
  /// The directory refuses one engine too many.
  refuse_with_room,
  /// An update for which there is no room is not sent later.
  lose_updates,
  /// Updates have all payloads, however many.
  ignore_update_bounds,
  /// Requests that wait for the disk have no deadline.
  wait_for_the_disk,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 23> defect_names{{
    {"keep-old-ranks", defect::keep_old_ranks},
    {"take-late-publications", defect::take_late_publications},
    {"forget-directory-time", defect::forget_directory_time},
    {"lose-wakeups", defect::lose_wakeups},
    {"answer-before-durable", defect::answer_before_durable},
    {"forget-the-withdrawn", defect::forget_the_withdrawn},
    {"restart-deadlines", defect::restart_deadlines},
    {"ignore-hashes", defect::ignore_hashes},
    {"ignore-scopes", defect::ignore_scopes},
    {"keep-the-gone", defect::keep_the_gone},
    {"fetch-twice", defect::fetch_twice},
    {"stale-cache", defect::stale_cache},
    {"forget-client-time", defect::forget_client_time},
    {"watch-once", defect::watch_once},
    {"keep-the-connection", defect::keep_the_connection},
    {"tell-before-durable", defect::report_before_durable},
    {"list-before-durable", defect::list_before_durable},
    {"tell-moved-deadlines", defect::report_moved_deadlines},
    {"ignore-limits", defect::ignore_limits},
    {"refuse-with-room", defect::refuse_with_room},
    {"lose-updates", defect::lose_updates},
    {"ignore-update-bounds", defect::ignore_update_bounds},
    {"wait-for-the-disk", defect::wait_for_the_disk},
}};

} // namespace troupe::handshake_simulation
