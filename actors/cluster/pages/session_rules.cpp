#include "actors/cluster/pages/session_rules.hpp"

#include <algorithm>

namespace troupe::cluster {

namespace {

bool has_namespace(const membership& peers, const session_name& session) {
  return std::ranges::any_of(peers.namespaces(session.first), [&](const auto& x) { return x.id == session.second; });
}

} // namespace

result<void> check_session(const namespace_shape& there, const namespace_id& ns, const kv_geometry& geometry,
                           std::size_t ranks) {
  if (there.id != ns)
    return fail(errc::identity_mismatch, "the namespace at the peer has been replaced by another one");
  bool same = there.geometry == geometry && there.ranks.size() == ranks;
  for (std::size_t i = 0; same && i < ranks; ++i)
    same = there.ranks[i] == i;
  if (!same)
    return fail(errc::identity_mismatch,
                "page size or ranks at the peer differ from those here under the same identity");
  return {};
}

void session_rules::open_here(const namespace_id& ns, const std::string& name, timestamp now) {
  auto& own = namespaces_[ns];
  own.name = name;
  if (own.is == phase::unreachable && own.again <= now) {
    own.is = phase::opening;
    outbox_.emplace_back(open_namespace{ns, name});
  }
}

void session_rules::follow(const std::map<namespace_id, std::string>& here, const membership& peers, fetching& pages,
                           timestamp now, const std::set<namespace_id>& adopted) {
  leave_sessions(here, peers, now);
  for (const auto& id : adopted)
    if (const auto name = here.find(id); name != here.end())
      open_here(id, name->second, now);
  for (const auto peer : peers.numbers())
    if (peers.is_up(peer))
      open_there(peer, here, peers, now);
  leave_namespaces(here, pages);
}

void session_rules::open_there(peer_number peer, const std::map<namespace_id, std::string>& here,
                               const membership& peers, timestamp now) {
  const bool may = may_try(peer, peers, now);
  const cluster_namespace* next = nullptr;
  session_entry* chosen = nullptr;
  for (const auto& x : peers.namespaces(peer)) {
    const auto name = here.find(x.id);
    if (name == here.end())
      continue;
    open_here(x.id, name->second, now);
    const auto& own = namespaces_[x.id];
    if (own.is != phase::open || own.lost || own.leaving)
      continue;
    auto& there = sessions_[{peer, x.id}];
    if (may && there.is == phase::unreachable && there.again <= now &&
        (chosen == nullptr || there.again < chosen->again)) {
      next = &x;
      chosen = &there;
    }
  }
  if (chosen == nullptr)
    return;
  chosen->is = phase::opening;
  chosen->of = peers.card(peer).incarnation;
  outbox_.emplace_back(open_session{{peer, next->id}, next->name});
}

bool session_rules::may_try(peer_number peer, const membership& peers, timestamp now) const {
  const auto pause = pauses_.find(peer);
  if (pause != pauses_.end() && pause->second.until > now && pause->second.of == peers.card(peer).incarnation)
    return false;
  return std::ranges::none_of(sessions_,
                              [&](const auto& x) { return x.first.first == peer && x.second.is == phase::opening; });
}

void session_rules::leave_sessions(const std::map<namespace_id, std::string>& here, const membership& peers,
                                   timestamp now) {
  std::erase_if(pauses_, [&](const auto& x) { return x.second.until <= now; });
  for (auto i = sessions_.begin(); i != sessions_.end();) {
    auto& [session, x] = *i;
    const bool up = peers.is_up(session.first);
    const bool silent = up && x.silent_since != timestamp::max() && later(x.silent_since, pause_) <= now;
    const bool gone = !here.contains(session.second) || !peers.is_known(session.first) ||
                      (up && (!has_namespace(peers, session) || silent ||
                              (x.is == phase::open && x.of != peers.card(session.first).incarnation)));
    if (!gone || x.is == phase::opening) {
      ++i;
      continue;
    }
    if (x.is == phase::open)
      outbox_.emplace_back(leave_session{session});
    i = sessions_.erase(i);
  }
}

void session_rules::leave_namespaces(const std::map<namespace_id, std::string>& here, fetching& pages) {
  for (auto i = namespaces_.begin(); i != namespaces_.end();) {
    auto& [id, x] = *i;
    if ((here.contains(id) && !x.lost && !x.leaving) || x.is == phase::opening) {
      ++i;
      continue;
    }
    // The removal is completed also when the namespace is back meanwhile; it is opened again after that.
    x.leaving = true;
    pages.remove_namespace(id);
    const auto of_this = [ns = id](const auto& session) { return session.first.second == ns; };
    // Sessions for it pass pages through the same memory, and have nothing in progress once that has been returned.
    if (pages.is_in_use(id) ||
        std::ranges::any_of(sessions_, [&](const auto& t) { return of_this(t) && t.second.is == phase::opening; })) {
      ++i;
      continue;
    }
    for (const auto& [session, there] : sessions_)
      if (session.second == id && there.is == phase::open)
        outbox_.emplace_back(leave_session{session});
    std::erase_if(sessions_, of_this);
    if (x.is == phase::open)
      outbox_.emplace_back(leave_namespace{id});
    i = namespaces_.erase(i);
  }
}

void session_rules::on_namespace_opened(const namespace_id& ns, bool fine, timestamp now) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end())
    return;
  auto& x = found->second;
  x.is = fine ? phase::open : phase::unreachable;
  x.lost = false;
  x.again = fine ? now : later(now, pause_);
}

void session_rules::on_namespace_lost(const namespace_id& ns) {
  if (const auto found = namespaces_.find(ns); found != namespaces_.end())
    found->second.lost = true;
}

bool session_rules::on_session_opened(const session_name& session, const result<void>& outcome, timestamp now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end())
    return false;
  auto& x = found->second;
  const bool is_known = !x.trouble.empty() || !trouble(session.first).empty();
  x.is = outcome ? phase::open : phase::unreachable;
  x.again = outcome ? now : later(now, pause_);
  x.silent_since = timestamp::max();
  x.trouble.clear();
  if (outcome)
    return false;
  pauses_[session.first] = {x.again, x.of};
  x.trouble = outcome.error().text.empty() ? "no answer" : outcome.error().text;
  return !is_known;
}

void session_rules::on_answered(const session_name& session, bool reached, timestamp now) {
  const auto found = sessions_.find(session);
  if (found != sessions_.end())
    found->second.silent_since = reached ? timestamp::max() : std::min(found->second.silent_since, now);
}

bool session_rules::is_open(const namespace_id& ns) const {
  const auto found = namespaces_.find(ns);
  return found != namespaces_.end() && found->second.is == phase::open;
}

bool session_rules::is_open(const session_name& session) const {
  const auto found = sessions_.find(session);
  return found != sessions_.end() && found->second.is == phase::open;
}

std::size_t session_rules::open_sessions(peer_number peer) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      sessions_, [&](const auto& x) { return x.first.first == peer && x.second.is == phase::open; }));
}

std::string session_rules::trouble(peer_number peer) const {
  const std::string* out = nullptr;
  // The sessions of a peer are neighbours.
  for (auto i = sessions_.lower_bound({peer, namespace_id{}}); i != sessions_.end() && i->first.first == peer; ++i) {
    if (i->second.is == phase::open)
      return {};
    if (out == nullptr && !i->second.trouble.empty())
      out = &i->second.trouble;
  }
  return out == nullptr ? std::string{} : *out;
}

std::string session_rules::name_of(const namespace_id& ns) const {
  const auto found = namespaces_.find(ns);
  return found == namespaces_.end() ? std::string{} : found->second.name;
}

} // namespace troupe::cluster
