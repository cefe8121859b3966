#include "actors/cluster/cluster.hpp"
#include "base/log.hpp"

#include <chrono>

/// What a node reports of its peers: in the log, in its condition, and in statistics.

namespace troupe::cluster {

namespace {

std::uint64_t microseconds_of(duration x) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(x).count());
}

} // namespace

void cluster::on_session_opened(const session_name& name, const result<void>& outcome) {
  if (rules_.on_session_opened(name, outcome, now()))
    log::get("cluster")->warn(
        "peer session not opened: namespace '{}' at node '{}', {} ({}); its pages are unavailable "
        "until it is, retrying",
        rules_.name_of(name.second), members_.card(name.first).node, members_.address(name.first),
        outcome.error().text);
}

std::string cluster::trouble_of(peer_number peer) const {
  return members_.is_up(peer) ? rules_.trouble(peer) : members_.trouble(peer);
}

void cluster::report_condition() {
  if (!parts_.condition)
    return;
  if (etcd_) {
    if (const auto why = etcd_->trouble(); why.empty())
      parts_.condition->ends(trouble::etcd_unreachable, 0);
    else
      parts_.condition->begins(trouble::etcd_unreachable, 0, why);
  }
  for (const auto i : members_.numbers()) {
    const auto part = static_cast<node_condition::part_number>(i);
    const auto why = members_.is_self(i) ? std::string{} : trouble_of(i);
    if (members_.is_self(i) || (members_.is_up(i) && why.empty()))
      parts_.condition->ends(trouble::peer_unreachable, part);
    else if (!why.empty())
      parts_.condition->begins(trouble::peer_unreachable, part,
                               (members_.is_up(i) ? "a peer answers, and its pages cannot be reached: "
                                                  : "a peer is unreachable, and its pages are unavailable until it "
                                                    "returns: ") +
                                   members_.address(i) + ": " + why);
  }
}

cluster_stats cluster::stats() const {
  cluster_stats out{parts_.self.cluster, {}};
  add_adopted(out);
  if (etcd_)
    out.etcd = etcd_->stats();
  for (const auto i : members_.numbers()) {
    const auto counts = fetching_.counts(i);
    const auto why = trouble_of(i);
    out.peers.push_back({.address = members_.address(i),
                         .node = members_.card(i).node,
                         .incarnation = members_.card(i).incarnation,
                         .up = members_.is_up(i) && why.empty(),
                         .self = members_.is_self(i),
                         .trouble = why,
                         .namespaces = rules_.open_sessions(i),
                         .asked = counts.asked,
                         .had = counts.had,
                         .late = counts.late,
                         .pages = counts.pages,
                         .bytes = counts.bytes,
                         .failed = counts.failed,
                         .learned_keys = learning_.learned_from(i),
                         .file_pages = counts.file_pages,
                         .file_bytes = counts.file_bytes,
                         .files_stale = counts.files_stale,
                         .files_damaged = counts.files_damaged,
                         .files_failed = counts.files_failed,
                         .lag_us = microseconds_of(members_.lag(i))});
  }
  return out;
}

} // namespace troupe::cluster
