#include "tests/cluster_simulation/world.hpp"

#include <algorithm>

/// Peer connections and peer sessions: which nodes know each other, and which are attached to which.

namespace troupe::cluster_simulation {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// After which a line gives a hello up.
constexpr auto hello_limit = milliseconds(1200);
constexpr auto attach_limit = seconds(3);

} // namespace

// -- hellos -----------------------------------------------------------------------------------------------------------

result<cluster_welcome> world::welcome(std::size_t at, std::size_t asker) const {
  const auto& n = nodes_[at];
  cluster_welcome out{{n.of_cluster, n.called, n.incarnation}, {}};
  if (n.of_cluster != nodes_[asker].of_cluster) {
    if (!has(defect::ignore_cluster_names))
      return fail(errc::identity_mismatch, "a node of another cluster");
    out.node.cluster = nodes_[asker].of_cluster;
  }
  if (has(defect::forget_itself) && at == asker)
    out.node.incarnation += 1'000'000;
  for (const auto& [id, name] : n.here)
    out.namespaces.push_back({id, name});
  return out;
}

void world::perform(std::size_t i, const cluster::say_hello& x) {
  auto& n = nodes_[i];
  // A peer that was removed after its handshake was scheduled.
  if (!n.members->is_known(x.peer))
    return;
  const auto whom = at_address(n.members->address(x.peer));
  n.lines[x.peer] = whom;
  n.last_hello[x.peer] = x.number;
  const auto cancelled = std::make_shared<bool>(false);
  const auto answered = std::make_shared<bool>(false);
  later_on(i, hello_limit, [this, i, x, cancelled, answered] {
    *cancelled = true;
    if (!*answered)
      on_hello(i, x.peer, x.number, fail(errc::unreachable, "it says nothing"));
  });
  if (!lives(whom)) {
    later_on(i, milliseconds(1), [this, i, x, cancelled, answered] {
      *answered = true;
      on_hello(i, x.peer, x.number, fail(errc::unreachable, "connection refused"));
    });
    return;
  }
  carry(i, whom, 0, [this, i, whom, life = n.life, x, cancelled, answered] {
    carry(whom, i, life, [this, i, x, cancelled, answered, what = welcome(whom, i)] {
      if (*answered)
        return;
      *answered = true;
      if (!*cancelled)
        return on_hello(i, x.peer, x.number, what);
      count("late hello");
      if (has(defect::take_late_hellos))
        on_hello(i, x.peer, nodes_[i].last_hello[x.peer], what);
    });
  });
}

void world::on_hello(std::size_t i, peer_number peer, number hello, const result<cluster_welcome>& answer) {
  auto& n = nodes_[i];
  const bool was_up = n.members->is_up(peer);
  n.members->on_answer(peer, hello, answer, local(i));
  if (!n.members->is_up(peer))
    return;
  if (answer)
    n.late.erase(peer);
  if (!was_up)
    count("found a peer");
  const auto& other = nodes_[node_of(i, peer)];
  if (n.of_cluster != other.of_cluster)
    broken("cluster", n.name + " takes " + other.name + " for a node of its cluster");
  auto& heard = n.heard_of[peer];
  const auto now = n.members->card(peer).incarnation;
  if (now < heard)
    broken("current", n.name + " takes " + other.name + " for a run of it that has ended");
  if (heard != 0 && now > heard)
    count("begun anew");
  heard = now;
}

void world::perform(std::size_t, const cluster::peer_news& x) {
  count(x.bad ? "bad news" : "news");
}

void world::perform(std::size_t i, const cluster::peer_came&) {
  look(i);
}

void world::perform(std::size_t, const cluster::peer_went&) {}

// -- namespaces here --------------------------------------------------------------------------------------------------

void world::perform(std::size_t i, const cluster::open_namespace& x) {
  later_on(i, random_.skewed_time(milliseconds(1), milliseconds(300)), [this, i, x] {
    auto& n = nodes_[i];
    const bool fine = n.here.contains(x.ns) && (is_calm_ || !random_.one_in(12));
    count(fine ? "namespace opened" : "namespace not opened");
    if (fine) {
      auto made = std::make_shared<memory>();
      made->ranks.assign(ranks_, std::vector<contents>(blocks_, 0));
      n.staging[x.ns] = std::move(made);
      n.pages->add_namespace(x.ns, 4096, ranks_, blocks_);
    }
    n.rules->on_namespace_opened(x.ns, fine, local(i));
    if (fine)
      look(i);
  });
}

void world::perform(std::size_t i, const cluster::leave_namespace& x) {
  count("namespace left");
  auto left = nodes_[i].staging.extract(x.ns);
  if (!left.empty())
    left.mapped()->gone = true;
}

// -- ties -------------------------------------------------------------------------------------------------------------

void world::attach(std::size_t i, const session_name& name, attached then) {
  const auto ended = std::make_shared<bool>(false);
  later_on(i, attach_limit, [ended, then] {
    if (!std::exchange(*ended, true))
      then(fail(errc::timeout, "it says nothing"));
  });
  const auto at = node_of(i, name.first);
  if (!lives(at)) {
    later_on(i, milliseconds(1), [ended, then] {
      if (!std::exchange(*ended, true))
        then(fail(errc::unreachable, "connection refused"));
    });
    return;
  }
  carry(i, at, 0, [this, i, at, life = nodes_[i].life, wanted = name.second, ended, then] {
    auto& p = nodes_[at];
    result<attachment> answer(attachment{0, p.life, 0});
    if (p.of_cluster != nodes_[i].of_cluster && !has(defect::ignore_cluster_names)) {
      answer = fail(errc::identity_mismatch, "a node of another cluster");
    } else if (!p.here.contains(wanted)) {
      answer = fail(errc::unknown_namespace, "there is no such namespace");
    } else {
      answer->owner = ++last_attachment_;
      answer->file = shares_disk_ ? slab_of(at, wanted).incarnation() : 0;
      named_files_[answer->owner] = answer->file;
      p.clients.emplace(answer->owner, i);
    }
    carry(at, i, life, [this, at, ended, then, answer] {
      if (std::exchange(*ended, true))
        return;
      // Messages of a connection that has ended meanwhile do not arrive.
      const auto& there = nodes_[at];
      const bool holds = !answer || (there.lives && there.life == answer->life && !ended_.contains(answer->owner));
      then(holds ? answer : fail(errc::unreachable, "the connection has ended"));
    });
  });
}

void world::perform(std::size_t i, const cluster::open_session& x) {
  if (has(defect::keep_old_sessions) && nodes_[i].sessions.contains(x.session)) {
    nodes_[i].rules->on_session_opened(x.session, {}, local(i));
    return;
  }
  attach(i, x.session, [this, i, x](const result<attachment>& came) {
    auto& n = nodes_[i];
    count(came ? "attached" : "not attached");
    if (came) {
      if (n.of_cluster != nodes_[node_of(i, x.session.first)].of_cluster)
        broken("cluster", n.name + " is a client of a node of another cluster");
      n.sessions[x.session] = {++last_serial_, came->owner, came->life, false, came->file};
    }
    n.rules->on_session_opened(x.session, came ? result<void>() : tl::unexpected<error>(came.error()), local(i));
    // The next one of this peer.
    if (came)
      look(i);
  });
}

void world::perform(std::size_t i, const cluster::leave_session& x) {
  auto& n = nodes_[i];
  if (has(defect::keep_old_sessions))
    return;
  count("tie left");
  const auto found = n.sessions.find(x.session);
  if (found == n.sessions.end())
    return;
  const auto [serial, owner, peer_life, refused, file] = found->second;
  lose_session(i, x.session);
  n.sessions.erase(x.session);
  // The peer disconnects in order, or its connection breaks.
  const auto at = node_of(i, x.session.first);
  if (lives(at) && nodes_[at].life == peer_life)
    later_on(at, random_.time(milliseconds(1), milliseconds(800)), [this, at, owner = owner] {
      nodes_[at].has.owner_is_gone(owner);
      nodes_[at].clients.erase(owner);
    });
}

void world::lose_session(std::size_t i, const session_name& name) {
  auto& n = nodes_[i];
  auto& x = n.sessions.at(name);
  const auto lost = std::exchange(x.attachment, 0);
  if (lost == 0)
    return;
  count("tie lost");
  std::vector<cluster::fetch_call> ended;
  for (const auto& [which, open] : n.calls)
    if (open.over == name && open.attachment == lost)
      ended.push_back(which);
  for (const auto which : ended) {
    const auto open = n.calls.extract(which);
    open.mapped().fail(errc::unreachable);
  }
  attach_again(i, name, x.serial);
}

void world::attach_again(std::size_t i, const session_name& name, number serial) {
  later_on(i, random_.skewed_time(milliseconds(100), seconds(2)), [this, i, name, serial] {
    const auto is_wanted = [this, i, name, serial] {
      const auto found = nodes_[i].sessions.find(name);
      return found != nodes_[i].sessions.end() && found->second.serial == serial && found->second.attachment == 0;
    };
    if (!is_wanted())
      return;
    attach(i, name, [this, i, name, serial, is_wanted](const result<attachment>& came) {
      if (!is_wanted())
        return;
      auto& x = nodes_[i].sessions.at(name);
      if (came) {
        count("attached again");
        x.attachment = came->owner;
        x.peer_life = came->life;
        x.file = came->file;
      } else if (came.error().code == errc::unknown_namespace) {
        // As a client does, which never finds its namespace again where there is none: for good.
        count("refused for good");
        x.refused = true;
      } else {
        attach_again(i, name, serial);
      }
    });
  });
}

} // namespace troupe::cluster_simulation
