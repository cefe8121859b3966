#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::cluster_actors {

/// Mistakes that can be built in around the actors, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// A session that was opened is not reported to the actor at times.
  lose_sessions,
  /// A session is opened twice at times, and both are reported.
  open_twice,
  /// Clients that are closed stay attached.
  keep_clients,
  /// Releases of leases are not sent.
  forget_releases,
  /// A load is answered before its last page is written.
  answer_loads_early,
  /// A load writes its pages to each other's blocks.
  mix_blocks,
  /// Loads are not answered at times.
  lose_loads,
  /// Pages that a load has failed to bring are saved.
  save_failed_pages,
  /// Pages that were not saved are reported as saved.
  claim_saved_pages,
  /// The connection to a node that has ended is neither closed nor silent: something answers its hellos.
  answer_for_the_dead,
  /// Nodes of another cluster are answered as those of the own one.
  ignore_cluster_names,
  /// Requests to the actor get lost at times.
  lose_requests,
  /// A session is opened at another namespace of the peer.
  open_other_namespace,
  /// The keys of pages that were kept are those of all pages that were leased.
  report_all_as_kept,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 14> defect_names{{
    {"lose-sessions", defect::lose_sessions},
    {"open-twice", defect::open_twice},
    {"keep-clients", defect::keep_clients},
    {"forget-releases", defect::forget_releases},
    {"answer-loads-early", defect::answer_loads_early},
    {"mix-blocks", defect::mix_blocks},
    {"lose-loads", defect::lose_loads},
    {"save-failed-pages", defect::save_failed_pages},
    {"claim-saved-pages", defect::claim_saved_pages},
    {"answer-for-the-dead", defect::answer_for_the_dead},
    {"ignore-cluster-names", defect::ignore_cluster_names},
    {"lose-requests", defect::lose_requests},
    {"open-other-namespace", defect::open_other_namespace},
    {"report-all-as-kept", defect::report_all_as_kept},
}};

} // namespace troupe::cluster_actors
