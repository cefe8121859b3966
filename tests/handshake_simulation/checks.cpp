#include "tests/handshake_simulation/world.hpp"

#include <algorithm>

/// Properties that must always hold.

namespace troupe::handshake_simulation {

namespace {

/// The latest answer after a deadline: the interval at which the world checks its clock.
constexpr auto slack = std::chrono::milliseconds(1);

} // namespace

void world::check_ranks(const std::string& who, const handshake::wanted_ranks& wanted,
                        const handshake_fetch_reply& reply) {
  std::uint64_t needed = 0;
  for (const auto& rank : ranks_of(reply.sizes))
    needed += needs(wanted, rank, reply.sizes.tp) ? 1 : 0;
  for (const auto& x : reply.entries)
    if (!needs(wanted, x.rank, reply.sizes.tp))
      broken("needed", who + " was notified with rank " + text_of(x.rank) + ", which was not requested");
  if (!reply.entries.empty() && reply.entries.front().rank.dp != reply.entries.back().rank.dp)
    count("notified of several dp ranks");
  if (!reply.entries.empty() && reply.entries.front().rank.pp != reply.entries.back().rank.pp)
    count("notified of several pipeline stages");
  if (!reply.complete || reply.entries.size() != needed)
    broken("complete", who + " was notified in part");
}

void world::check_answer(const handshake_fetch_request& what, handshake_fetch_reply& reply) {
  trace(reply.code + reply.incarnation * 256);
  auto& e = find(what.engine);
  e.notified = std::max(e.notified, reply.incarnation);
  if (reply.code != 0)
    return;
  if (has(defect::keep_old_ranks) && reply.incarnation > 1 && random_.one_in(20))
    reply.entries.back().payload = payload_of(what.engine, reply.incarnation - 1, reply.entries.back().rank);
  const auto who = what.engine + " as " + std::to_string(reply.incarnation);
  if (reply.incarnation < e.taken)
    broken("current", who + " was notified when there was " + std::to_string(e.taken));
  for (const auto& x : reply.entries)
    if (x.payload != payload_of(what.engine, reply.incarnation, x.rank))
      broken("current", who + " was notified with data of another start: " + std::string(x.payload.view()));
  if (reply.incarnation <= e.withdrawn)
    broken("withdrawn", who + " was notified after it was withdrawn");
  if (const auto alive = e.alive_at.find(reply.incarnation);
      alive == e.alive_at.end() || later(alive->second, time_to_live) < now_)
    broken("alive", who + " was notified long after its last heartbeat");
  if (has(defect::report_moved_deadlines))
    reply.expires_in = later(e.alive_at[reply.incarnation], time_to_live) - now_;
  if (const auto noted = directory_.disk.engines.find(what.engine);
      noted == directory_.disk.engines.end() || reply.expires_in > std::max(noted->second.deadline - now_, duration()))
    broken("deadline", who + " was notified with a deadline that is not durable");
  if (!what.compat.empty() && what.compat != e.compat)
    broken("compatible", who + " was sent to a client with another hash");
  check_ranks(who, {what.scope, what.rank, what.own_tp_size}, reply);
  count("told");
}

errc world::limit_of(const handshake_publish_request& x) const {
  if (x.sizes.count() > options_.ranks_max || x.payload.size() > options_.payload_bytes_max)
    return errc::invalid_argument;
  auto now = directory_.state->stats();
  if (now.engines + 1 > options_.engines_max || now.bytes + x.payload.size() > options_.bytes_max)
    return errc::limit_exceeded;
  return errc::ok;
}

void world::check_limits() {
  const auto now = directory_.state->stats();
  if (now.engines > options_.engines_max || now.bytes > options_.bytes_max || now.waiting > options_.waiting_max)
    broken("limits", "the directory has more than it may");
}

/// A list is what the disk has, to the last deadline.
void world::check_list() {
  auto notified = directory_.state->list({}, now_).engines;
  count("listed");
  std::size_t alive = 0;
  for (const auto& [name, x] : directory_.disk.engines)
    alive += x.over == handshake::ending::none && x.deadline > now_ ? 1 : 0;
  if (notified.size() != alive)
    broken("listed",
           std::to_string(notified.size()) + " engines are listed, and " + std::to_string(alive) + " are durable");
  for (auto& x : notified) {
    if (has(defect::list_before_durable))
      x.incarnation = std::max(x.incarnation, find(x.engine).taken);
    const auto noted = directory_.disk.engines.find(x.engine);
    const auto ranks = std::ranges::count_if(directory_.disk.ranks, [&](const auto& y) {
      return y.first.first == x.engine && y.second.incarnation == x.incarnation;
    });
    if (noted == directory_.disk.engines.end() || noted->second.incarnation != x.incarnation ||
        noted->second.deadline - now_ != x.expires_in || static_cast<std::uint32_t>(ranks) != x.ranks)
      broken("listed", x.engine + " is listed as " + std::to_string(x.incarnation) + ", which is not durable");
  }
}

void world::check_waits() {
  for (const auto& [who, x] : directory_.waiting)
    if (later(x.deadline, slack + options_.disk_patience) < now_)
      broken("ends", "a request waits at the directory beyond its deadline");
  for (const auto& c : clients_)
    for (const auto& [who, x] : c.open)
      if (later(x.deadline, slack) < now_)
        broken("ends", "a client has not answered in time");
}

} // namespace troupe::handshake_simulation
