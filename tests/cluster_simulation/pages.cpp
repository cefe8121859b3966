#include "tests/cluster_simulation/world.hpp"

#include <algorithm>

/// Pages on their way from one node to another, and engines that wait for them.

namespace troupe::cluster_simulation {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Limits of a coordinator that looks up.
constexpr auto ask_limit = seconds(3);
/// Longer than any other time, so that a leaked lease still exists in the end.
constexpr auto lease_time = seconds(3000);

std::uint8_t as_byte(errc x) {
  return static_cast<std::uint8_t>(x);
}

} // namespace

contents world::truth(std::size_t i, const namespace_id& ns, const key_digest& key, std::uint32_t rank) const {
  simulation::random_source out(ns.lo * 1'000'003 + key.hi * 10'007 + key.lo * 101 + rank * 7 +
                                (nodes_[i].of_cluster == "ours" ? 1 : 2));
  return out.next() | 1U;
}

bool world::take(std::size_t i, cluster::fetch_call which) {
  return nodes_[i].calls.erase(which) > 0;
}

// -- lookups at peers -------------------------------------------------------------------------------------------------

void world::perform(std::size_t i, const cluster::fetch_ask& x) {
  ask_peer(i, x, false);
}

void world::on_found(std::size_t i, cluster::fetch_call which, const result<lookup_result>& found) {
  if ((which & search_call) != 0)
    nodes_[i].searches->on_found(which & ~search_call, found, local(i));
  else
    nodes_[i].pages->on_found(which, found, local(i));
}

void world::ask_peer(std::size_t i, const cluster::fetch_ask& x, bool each) {
  auto& n = nodes_[i];
  count("asked");
  const auto at = node_of(i, x.peer);
  if (at == i)
    broken("self", n.name + " asks itself for pages");
  if (n.late.contains(x.peer))
    broken("patience", n.name + " asks a peer that was late, before it has said hello");
  const session_name over(x.peer, x.ns);
  const auto found = n.sessions.find(over);
  if (found == n.sessions.end() || found->second.attachment == 0) {
    later_on(i, milliseconds(1), [this, i, over, call = x.call] {
      count("not attached to who is asked");
      nodes_[i].rules->on_answered(over, false, local(i));
      on_found(i, call, fail(errc::unreachable, "not attached"));
    });
    return;
  }
  const auto& there = found->second;
  const ticket lease{there.attachment, x.call};
  n.calls[x.call] = {over, there.attachment, [this, i, over, call = x.call](errc why) {
                       nodes_[i].rules->on_answered(over, why != errc::unreachable, local(i));
                       on_found(i, call, fail(why, "no answer"));
                     }};
  later_on(i, ask_limit, [this, i, x, lease, at, life = there.peer_life] {
    const auto open = nodes_[i].calls.find(x.call);
    if (open == nodes_[i].calls.end())
      return;
    count("ask timed out");
    const auto fail_with = open->second.fail;
    nodes_[i].calls.erase(open);
    fail_with(errc::timeout);
    give_back(i, at, life, lease, x.ns, {});
  });
  carry(i, at, there.peer_life, [this, i, own_life = n.life, x, lease, over, at, each] {
    auto& p = nodes_[at];
    lookup_result what;
    std::vector<key_digest> held;
    if (p.clients.contains(lease.owner) && p.here.contains(x.ns) && !p.given_back.contains(lease)) {
      if (each)
        held = p.has.match_each(x.ns, x.keys);
      else
        held.assign(x.keys.begin(), x.keys.begin() + p.has.match(x.ns, x.keys));
      what.matched = static_cast<std::uint32_t>(held.size());
    }
    for (const auto& key : x.keys)
      if (each)
        what.found.items.push_back(std::ranges::count(held, key) > 0 ? 1 : 0);
    if (what.matched > 0) {
      what.lease = lease;
      // One that runs out too early is another node's clock, or a round that takes too long.
      const auto lasts = is_calm_ || !random_.one_in(8) ? lease_time : random_.time(milliseconds(50), seconds(1));
      p.has.hold(lease, {x.ns, held, now_, later(now_, lasts)});
    }
    carry(at, i, own_life, [this, i, x, what, over] {
      if (take(i, x.call)) {
        nodes_[i].rules->on_answered(over, true, local(i));
        on_found(i, x.call, what);
      } else {
        count("late answer");
      }
    });
  });
}

void world::give_back(std::size_t i, std::size_t whom, number life, const ticket& lease, const namespace_id& ns,
                      const std::vector<key_digest>& kept) {
  if (has(defect::forget_releases))
    return;
  // Asked for again and again, while both are there and attached.
  const auto done = std::make_shared<bool>(false);
  carry(i, whom, life, [this, whom, lease, ns, kept, done] {
    *done = true;
    on_kept_there(whom, lease, ns, kept);
    nodes_[whom].has.release(lease);
    nodes_[whom].given_back.insert(lease);
  });
  later_on(i, seconds(4), [this, i, whom, life, lease, ns, kept, done] {
    if (!*done && nodes_[whom].lives && nodes_[whom].life == life)
      give_back(i, whom, life, lease, ns, kept);
  });
}

void world::on_kept_there(std::size_t at, const ticket& lease, const namespace_id& ns,
                          const std::vector<key_digest>& kept) {
  auto& n = nodes_[at];
  n.has.look_at_clock(now_);
  const auto held = n.has.leases().find(lease);
  if (!kept.empty() && held == n.has.leases().end())
    count("notified too late");
  if (has(defect::forget_evict_first))
    return;
  for (const auto& key : kept) {
    const bool listed = held != n.has.leases().end() && std::ranges::count(held->second.keys, key) > 0;
    const auto copy = n.has.find(ns, key);
    if (!copy || (!listed && !has(defect::evict_first_without_lease)))
      continue;
    count("spare");
    if (!copy->transient && copy->made >= made_last_[{n.of_cluster, ns, key}])
      broken("last", n.name + " is to let a page go first that no node has made since");
    n.has.mark_evict_first(ns, key);
  }
}

void world::put(std::size_t i, const namespace_id& ns, const key_digest& key, std::uint32_t rank, contents what,
                bool transient) {
  auto& n = nodes_[i];
  n.has.put(ns, key, rank, what, ++puts_, transient);
  if (const auto copy = n.has.find(ns, key); copy && !copy->transient)
    made_last_[{n.of_cluster, ns, key}] = puts_;
}

void world::perform(std::size_t i, const cluster::fetch_release& x) {
  // When a peer session has ended, all its leases have ended.
  const auto found = nodes_[i].sessions.find({x.peer, x.ns});
  if (found != nodes_[i].sessions.end() && found->second.attachment == x.lease.owner)
    give_back(i, node_of(i, x.peer), found->second.peer_life, x.lease, x.ns, x.kept_here);
}

void world::perform(std::size_t i, const cluster::fetch_late& x) {
  count("late");
  nodes_[i].members->on_late(x.peer);
  nodes_[i].late.insert(x.peer);
}

// -- pages ------------------------------------------------------------------------------------------------------------

void world::perform(std::size_t i, const cluster::fetch_move& x) {
  auto& n = nodes_[i];
  const session_name over(x.peer, x.ns);
  const auto found = n.sessions.find(over);
  const auto room = n.staging.find(x.ns);
  if (room == n.staging.end())
    return broken("blocks", n.name + " loads into released memory");
  for (const auto block : x.work.blocks)
    if (!n.busy.emplace(x.ns, x.rank, block).second)
      return broken("blocks", n.name + " loads into a block that something else is under way in");
  if (found == n.sessions.end() || found->second.attachment == 0) {
    later_on(i, milliseconds(1), [this, i, x] { answer_load(i, x, fail(errc::unreachable, "not attached")); });
    return;
  }
  const auto& there = found->second;
  if (shares_disk_)
    return load_by_files(i, x, there, room->second);
  n.calls[x.call] = {over, there.attachment,
                     [this, i, x](errc why) { answer_load(i, x, fail(why, "the connection has ended")); }};
  later_on(i, by_world(i, x.work.deadline), [this, i, x] {
    if (!take(i, x.call))
      return;
    count("load timed out");
    answer_load(i, x, fail(errc::timeout, "not in time"));
  });
  if (has(defect::answer_loads_early))
    later_on(i, milliseconds(1), [this, i, x] {
      transfer_result all;
      all.results.items.assign(x.work.keys.size(), as_byte(errc::ok));
      if (take(i, x.call))
        answer_load(i, x, all);
    });
  const auto at = node_of(i, x.peer);
  carry(i, at, there.peer_life, [this, i, at, own_life = n.life, x, into = room->second, owner = there.attachment] {
    const auto& p = nodes_[at];
    std::vector<std::optional<contents>> what;
    for (const auto& key : x.work.keys)
      what.push_back(p.clients.contains(owner) ? p.has.page(x.ns, key, x.rank) : std::nullopt);
    if (streams_ > 1)
      return load_by_streams(i, at, x, into, what);
    carry(at, i, own_life, [this, i, x, into, what] { land(i, x, into, what); });
  });
}

void world::land(std::size_t i, const cluster::fetch_move& x, const std::shared_ptr<memory>& into,
                 const std::vector<std::optional<contents>>& what) {
  auto& n = nodes_[i];
  // When a task has ended, its connection has ended too: no more of its messages arrive.
  if (!n.calls.contains(x.call) && !has(defect::answer_loads_early))
    return count("landed nowhere");
  if (into->gone)
    return broken("blocks", "bytes come to memory of " + n.name + " that was freed");
  transfer_result outcome;
  const auto rank = has(defect::one_memory_for_all_ranks) ? 0 : x.rank;
  for (std::size_t k = 0; k < x.work.keys.size(); ++k) {
    auto code = what[k] ? errc::ok : errc::not_found;
    if (what[k]) {
      const bool damaged = !is_calm_ && random_.one_in(60);
      into->ranks[rank][x.work.blocks[k]] = *what[k] ^ (damaged ? 2U : 0U);
      if (damaged)
        count("damaged");
      if (damaged && !has(defect::skip_verification))
        code = errc::corrupt;
    } else {
      count("not there any more");
    }
    if (has(defect::save_unfinished))
      code = errc::ok;
    outcome.results.items.push_back(as_byte(code));
  }
  if (has(defect::lose_answers) && random_.one_in(4)) {
    take(i, x.call);
    return;
  }
  if (take(i, x.call))
    answer_load(i, x, outcome);
}

void world::answer_load(std::size_t i, const cluster::fetch_move& x, const result<transfer_result>& outcome) {
  auto& n = nodes_[i];
  cluster::sending_counts sent;
  sent.add(outcome, x.work.keys.size());
  transfer_result codes;
  for (std::size_t k = 0; k < x.work.keys.size(); ++k)
    codes.results.items.push_back(outcome ? outcome->results[k] : as_byte(outcome.error().code));
  const auto room = n.staging.find(x.ns);
  if (room == n.staging.end())
    return broken("blocks", n.name + " saves from released memory");
  later_on(i, random_.skewed_time(microseconds(100), milliseconds(40)),
           [this, i, x, codes, sent, from = room->second] { save(i, x, codes, sent, from); });
}

void world::save(std::size_t i, const cluster::fetch_move& x, transfer_result codes,
                 const cluster::sending_counts& sent, const std::shared_ptr<memory>& from) {
  auto& n = nodes_[i];
  for (const auto block : x.work.blocks)
    n.busy.erase({x.ns, x.rank, block});
  if (from->gone)
    return broken("blocks", n.name + " saves from released memory");
  if (!n.here.contains(x.ns)) {
    count("sent away");
    n.rules->on_namespace_lost(x.ns);
    return n.pages->on_moved(x.call, fail(errc::unreachable, "the namespace has been removed from this node"), sent,
                             local(i));
  }
  const auto rank = has(defect::one_memory_for_all_ranks) ? 0 : x.rank;
  bool is_missing = false;
  for (std::size_t k = 0; k < x.work.keys.size(); ++k) {
    const auto& key = x.work.keys[k];
    const auto bytes = from->ranks[rank][x.work.blocks[k]];
    auto code = is_missing ? errc::cancelled : static_cast<errc>(codes.results[k]);
    is_missing |= code != errc::ok;
    if (code != errc::ok) {
      // Behind a page that has not come no other is kept.
    } else if (!is_calm_ && random_.one_in(50)) {
      count("save failed");
      code = errc::limit_exceeded;
    } else if (n.has.page(x.ns, key, x.rank)) {
      count("here already");
      code = has(defect::report_what_was_here) ? errc::ok : errc::exists;
    } else {
      if (bytes != truth(i, x.ns, key, x.rank))
        broken("bytes", n.name + " saves other bytes under a key");
      put(i, x.ns, key, x.rank, bytes, x.work.origin == page_origin::transient && !has(defect::forget_transient));
      // All other keys have holders: there was no room for it.
      if (!n.has.page(x.ns, key, x.rank))
        code = errc::full;
    }
    codes.results[k] = as_byte(code);
  }
  n.pages->on_moved(x.call, codes, sent, local(i));
}

// -- engines ----------------------------------------------------------------------------------------------------------

std::string world::how_it_is(std::size_t i, const namespace_id& ns) const {
  const auto& n = nodes_[i];
  std::string out = ": " + std::to_string(blocks_) + " blocks for each of " + std::to_string(ranks_) +
                    " ranks, of which " + std::to_string(n.pages->blocks_in_use()) + " are in use; " +
                    std::to_string(n.pages->rounds()) + " rounds, " + std::to_string(n.pages->calls_under_way()) +
                    " calls";
  for (const auto p : n.members->numbers()) {
    const auto there = n.sessions.find({p, ns});
    out += "; " + n.members->address(p) + (n.members->is_up(p) ? " up" : " away") +
           (n.members->is_usable(p) ? "" : ", late") + (n.rules->is_open(session_name(p, ns)) ? ", tied" : ", no tie") +
           (there == n.sessions.end()       ? ", never attached"
            : there->second.attachment == 0 ? ", lost"
                                            : ", attached") +
           (there != n.sessions.end() && there->second.refused ? ", refused" : "") +
           (there != n.sessions.end() && nodes_[node_of(i, p)].clients.contains(there->second.attachment) ? ", known"
                                                                                                          : "");
  }
  return out;
}

std::vector<key_digest> world::some_keys() {
  // Paths of a few trees, each with a fork.
  const auto tree = random_.between(1, 4);
  const auto branch = random_.below(3);
  std::vector<key_digest> out;
  for (number depth = 1, length = random_.between(1, 14); depth <= length; ++depth)
    out.push_back({tree, depth + (depth > 5 ? 100 * branch : 0)});
  return out;
}

void world::compute(std::size_t i, const namespace_id& ns, const std::vector<key_digest>& keys, bool whole) {
  for (const auto& key : keys)
    for (std::uint32_t rank = 0; rank < ranks_; ++rank)
      if (whole || !random_.one_in(8))
        if (!nodes_[i].has.page(ns, key, rank))
          put(i, ns, key, rank, truth(i, ns, key, rank));
}

void world::look_up(std::size_t i, const namespace_id& ns, const std::vector<key_digest>& keys, bool must_find) {
  auto& n = nodes_[i];
  waiting_engine x{ns, keys, n.has.match(ns, keys), now_, n.pauses, must_find};
  if (x.before == keys.size())
    return load(i, x, x.before);
  prefix_fetch_request wanted{ns, x.before > 0 ? keys[x.before - 1] : key_digest{}, {}};
  wanted.keys.items.assign(keys.begin() + x.before, keys.end());
  const auto who = n.pages->wanted_prefix(wanted, local(i));
  n.waiting.emplace(who, std::move(x));
  settle(i);
}

void world::perform(std::size_t i, const cluster::fetch_answer& x) {
  auto& n = nodes_[i];
  if (n.searches->on_run(x))
    return;
  const auto found = n.waiting.extract(x.requester);
  if (found.empty())
    return broken("ends", "an engine of " + n.name + " is answered twice");
  const auto& w = found.mapped();
  if (w.before + x.keys > w.keys.size())
    return broken("ends", n.name + " has fetched more than was requested");
  if (n.pauses == w.pauses && later(w.begun, by_world(i, wait_limit + slack)) < now_)
    broken("ends", "an engine of " + n.name + " has waited too long");
  count(x.keys == 0 ? "brought nothing" : w.before + x.keys < w.keys.size() ? "brought some" : "brought all");
  auto matched = n.has.match(w.ns, w.keys);
  if (has(defect::believe_answers))
    matched = w.before + x.keys;
  load(i, w, matched);
}

void world::load(std::size_t i, const waiting_engine& x, std::uint32_t matched) {
  auto& n = nodes_[i];
  for (std::uint32_t k = 0; k < matched; ++k)
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const auto page = n.has.page(x.ns, x.keys[k], rank);
      if (!page)
        return broken("promise", n.name + " has reported a page to an engine that it does not have");
      if (*page != truth(i, x.ns, x.keys[k], rank))
        return broken("bytes", "an engine of " + n.name + " loads other bytes than were saved");
    }
  for (std::uint32_t k = 0; k < matched; ++k)
    n.has.read(x.ns, x.keys[k]);
  if (x.must_find && matched < x.keys.size())
    broken("found", n.name + " does not find what another node has, when all is well" + how_it_is(i, x.ns));
  if (matched == x.keys.size())
    return;
  // It saves most of what it computes.
  if (n.here.contains(x.ns) && !x.must_find)
    compute(i, x.ns, x.keys, random_.one_in(2));
}

} // namespace troupe::cluster_simulation
