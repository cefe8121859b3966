#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::cluster_simulation {

/// Mistakes that can be built in around the rules, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// The answer to a cancelled hello counts as the answer to the next one.
  take_late_hellos,
  /// The cluster name of a node is not checked.
  ignore_cluster_names,
  /// A load is answered while its bytes are on their way.
  answer_loads_early,
  /// Pages that come are not verified.
  skip_verification,
  /// The deadlines of waiting requests are not checked.
  forget_time,
  /// One answer to a load in four never comes.
  lose_answers,
  /// Leases at peers are not given back.
  forget_releases,
  /// Sessions with an earlier run of a peer stay.
  keep_old_sessions,
  /// Memory of a namespace that goes does so at once.
  free_memory_early,
  /// The ranks of a namespace share one staging buffer.
  one_memory_for_all_ranks,
  /// Fetched pages count as found before they are complete.
  believe_answers,
  /// A peer that was late is asked all the same.
  keep_asking_the_late,
  /// A node does not know its own card.
  forget_itself,
  /// Leases of a node outlive it.
  keep_leases_of_the_dead,
  /// Blocks that were not filled are saved with the others.
  save_unfinished,
  /// Pages that were here before count as made from those of the peer.
  report_what_was_here,
  /// Copies that a peer keeps are evicted first even without its lease.
  evict_first_without_lease,
  /// Copies that a peer keeps are not recorded.
  forget_evict_first,
  /// Transient keys are not recorded either.
  forget_transient,
  /// Nodes that are not in the list are left out although they answer.
  drop_the_unlisted,
  /// When etcd does not answer, the list is empty.
  forget_list_with_etcd,
  /// No peer is asked for pages while etcd is unreachable.
  wait_for_etcd,
  /// One answer of etcd in eight is lost, and its deadline is not checked.
  lose_etcd_answers,
  /// A node that leaves does not take itself out of the list.
  forget_deregistrations,
  /// Leases in etcd count as kept alive, and are not.
  forget_keep_alives,
  /// Removed nodes stay in the list.
  keep_the_unlisted,
  /// Entries that make no sense are taken for nodes.
  take_nonsense,
  /// Of several nodes with one name, an arbitrary one is chosen.
  one_node_per_name,
  /// A node does not put its entry again.
  put_once,
  /// The content of a peer's file is accepted without a check of its key.
  believe_files,
  /// A read from a file is reported as cancelled and continues.
  answer_reads_early,
  /// Pages that a file did not give are not requested from the peer.
  forget_the_wire,
  /// The files of a peer are those of the first session with it.
  keep_files_of_before,
  /// A node confirms that it has ended a connection for pages, and goes on to take bytes from it.
  keep_ended_streams,
  /// The deadlines of searches are not checked.
  forget_search_time,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 35> defect_names{{
    {"take-late-hellos", defect::take_late_hellos},
    {"ignore-cluster-names", defect::ignore_cluster_names},
    {"answer-loads-early", defect::answer_loads_early},
    {"skip-verification", defect::skip_verification},
    {"forget-time", defect::forget_time},
    {"lose-answers", defect::lose_answers},
    {"forget-releases", defect::forget_releases},
    {"keep-old-ties", defect::keep_old_sessions},
    {"free-memory-early", defect::free_memory_early},
    {"one-memory-for-all-ranks", defect::one_memory_for_all_ranks},
    {"believe-answers", defect::believe_answers},
    {"keep-asking-the-late", defect::keep_asking_the_late},
    {"forget-itself", defect::forget_itself},
    {"keep-leases-of-the-dead", defect::keep_leases_of_the_dead},
    {"save-unfinished", defect::save_unfinished},
    {"tell-of-what-was-here", defect::report_what_was_here},
    {"evict-first-without-lease", defect::evict_first_without_lease},
    {"forget-evict-first", defect::forget_evict_first},
    {"forget-transient", defect::forget_transient},
    {"drop-the-unlisted", defect::drop_the_unlisted},
    {"forget-list-with-etcd", defect::forget_list_with_etcd},
    {"wait-for-etcd", defect::wait_for_etcd},
    {"lose-etcd-answers", defect::lose_etcd_answers},
    {"forget-farewells", defect::forget_deregistrations},
    {"forget-keep-alives", defect::forget_keep_alives},
    {"keep-the-unlisted", defect::keep_the_unlisted},
    {"take-nonsense", defect::take_nonsense},
    {"one-node-per-name", defect::one_node_per_name},
    {"put-once", defect::put_once},
    {"believe-files", defect::believe_files},
    {"answer-reads-early", defect::answer_reads_early},
    {"forget-the-wire", defect::forget_the_wire},
    {"keep-files-of-before", defect::keep_files_of_before},
    {"keep-ended-streams", defect::keep_ended_streams},
    {"forget-search-time", defect::forget_search_time},
}};

} // namespace troupe::cluster_simulation
