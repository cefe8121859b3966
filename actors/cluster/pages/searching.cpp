#include "actors/cluster/pages/searching.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace troupe::cluster {

void searching::set_next(entry& x, timestamp next) {
  x.next = next;
  next_event_ = std::min(next_event_, next);
}

// -- asking -----------------------------------------------------------------------------------------------------------

search_number searching::search(const search_peers_request& wanted, timestamp now) {
  const auto number = ++last_search_;
  const auto left = options_.wait_limit - std::clamp(wanted.waited, duration::zero(), options_.wait_limit);
  if (searches_.size() >= options_.searches_max || wanted.keys.empty() || left <= duration::zero()) {
    outbox_.emplace_back(search_found{number, {}});
    return number;
  }
  auto& x = searches_[number];
  x.ns = wanted.ns;
  x.keys = wanted.keys.items;
  x.until = later(now, left);
  set_next(x, x.until);
  asking_[x.ns].queue.push_back(number);
  ask_queued(wanted.ns, now);
  return number;
}

void searching::ask_queued(const namespace_id& ns, timestamp now) {
  auto found = asking_.find(ns);
  while (found != asking_.end() && found->second.now < options_.asking_max && !found->second.queue.empty()) {
    const auto number = found->second.queue.front();
    found->second.queue.pop_front();
    // One whose time has ended meanwhile is answered by the tick.
    if (const auto x = searches_.find(number); x != searches_.end() && x->second.until > now)
      ask(number, x->second, now);
    found = asking_.find(ns);
  }
  if (found != asking_.end() && found->second.now == 0 && found->second.queue.empty())
    asking_.erase(found);
}

void searching::ask(search_number number, entry& x, timestamp now) {
  const auto peers = options_.peers(x.ns);
  x.at = phase::asking;
  x.late_at = later(now, options_.ask_limit);
  set_next(x, std::min(x.until, x.late_at));
  ++asking_[x.ns].now;
  for (const auto peer : peers) {
    pages_.count_asked(peer);
    x.asked.insert(peer);
    calls_.emplace(++last_call_, call{number, x.ns, peer});
    outbox_.emplace_back(search_ask{last_call_, peer, x.ns, x.keys});
  }
  if (peers.empty())
    answer(number, x);
}

void searching::on_found(fetch_call number, const result<lookup_result>& found, timestamp now) {
  const auto ended = calls_.extract(number);
  if (ended.empty())
    return;
  const auto& what = ended.mapped();
  const bool has_some = found && found->matched > 0;
  const auto at = searches_.find(what.search);
  if (at == searches_.end() || at->second.at != phase::asking || at->second.asked.erase(what.peer) == 0) {
    if (has_some)
      outbox_.emplace_back(fetch_release{what.peer, what.ns, found->lease});
    return;
  }
  auto& x = at->second;
  if (has_some) {
    ++pages_.counts_for(what.peer).had;
    x.offers.push_back({what.peer, found->lease, found->found.items});
    // A peer that accepts fewer keys at once answers fewer.
    x.offers.back().found.resize(x.keys.size(), 0);
  }
  if (x.asked.empty()) {
    answer(what.search, x);
    ask_queued(what.ns, now);
  }
}

void searching::answer(search_number number, entry& x) {
  if (x.at == phase::asking)
    --asking_.at(x.ns).now;
  x.asked.clear();
  search_found out{number, {}};
  if (x.offers.empty()) {
    outbox_.emplace_back(std::move(out));
    searches_.erase(number);
    return;
  }
  out.reply.search = number;
  out.reply.found.items.assign(x.keys.size(), 0);
  for (const auto& each : x.offers)
    for (std::size_t i = 0; i < x.keys.size(); ++i)
      if (each.found[i] != 0)
        out.reply.found.items[i] = 1;
  outbox_.emplace_back(std::move(out));
  x.at = phase::held;
  set_next(x, x.until);
}

// -- fetching ---------------------------------------------------------------------------------------------------------

search_number searching::fetch(const fetch_pages_request& wanted, timestamp now) {
  const auto number = ++last_search_;
  const auto found = searches_.find(wanted.search);
  // Another client of the node may name any number, but only within its own namespace.
  if (found == searches_.end() || found->second.at != phase::held || found->second.ns != wanted.ns) {
    outbox_.emplace_back(search_fetched{number, 0});
    return number;
  }
  auto& x = found->second;
  x.at = phase::fetching;
  x.fetch = number;
  const auto from = assign(x, wanted.keys.items);
  for (std::size_t k = 0; k < x.offers.size(); ++k) {
    if (x.offers[k].lease == ticket{})
      continue;
    std::vector<key_digest> kept;
    for (std::size_t i = 0; i < from.size(); ++i)
      if (from[i] == k)
        kept.push_back(wanted.keys[i]);
    if (kept.empty())
      outbox_.emplace_back(fetch_release{x.offers[k].peer, x.ns, std::exchange(x.offers[k].lease, {})});
    else
      outbox_.emplace_back(search_retain{x.offers[k].peer, x.ns, x.offers[k].lease, std::move(kept)});
  }
  // `fetching` answers each run by that time.
  x.next = timestamp::max();
  start_runs(wanted.search, x, wanted, from, now);
  if (x.runs == 0)
    end(wanted.search);
  return number;
}

std::vector<std::size_t> searching::assign(const entry& x, std::span<const key_digest> keys) const {
  std::unordered_map<key_digest, std::size_t> positions;
  for (std::size_t i = 0; i < x.keys.size(); ++i)
    positions.emplace(x.keys[i], i);
  std::vector<std::size_t> out(keys.size(), no_offer);
  const auto has = [&](const offer& of, const key_digest& key) {
    const auto found = positions.find(key);
    return found != positions.end() && of.found[found->second] != 0;
  };
  // Live peers come first, then the peer that has most of what is left, then the less busy one.
  std::set<std::size_t> left;
  for (std::size_t k = 0; k < x.offers.size(); ++k)
    left.insert(k);
  while (!left.empty()) {
    std::size_t best = no_offer;
    std::tuple<bool, std::size_t, std::size_t> best_rank;
    for (const auto k : left) {
      std::size_t count = 0;
      for (std::size_t i = 0; i < keys.size(); ++i)
        count += out[i] == no_offer && has(x.offers[k], keys[i]) ? 1 : 0;
      const auto peer = x.offers[k].peer;
      const std::tuple rank{peer < options_.first_dead, count, ~pages_.moving_from(peer)};
      if (count > 0 && (best == no_offer || rank > best_rank)) {
        best = k;
        best_rank = rank;
      }
    }
    if (best == no_offer)
      break;
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (out[i] == no_offer && has(x.offers[best], keys[i]))
        out[i] = best;
    left.erase(best);
  }
  return out;
}

void searching::start_runs(search_number number, entry& x, const fetch_pages_request& wanted,
                           const std::vector<std::size_t>& from, timestamp now) {
  const bool chained = !wanted.parents.empty();
  std::vector<fetch_run> runs;
  const auto add = [&](std::size_t i, fetch_run& to) { to.keys.push_back(wanted.keys[i]); };
  if (chained)
    // Pages with parents are saved in the order of the prefix, so a gap in what is fetched begins another run.
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto parent = i < wanted.parents.size() ? wanted.parents[i] : key_digest{};
      if (from[i] == no_offer)
        continue;
      if (i == 0 || from[i] != from[i - 1] || runs.empty() || parent != wanted.keys[i - 1])
        runs.push_back({x.ns, x.offers[from[i]].peer, parent, {}, true, x.until});
      add(i, runs.back());
    }
  else
    for (std::size_t k = 0; k < x.offers.size(); ++k) {
      fetch_run one{x.ns, x.offers[k].peer, {}, {}, false, x.until};
      for (std::size_t i = 0; i < from.size(); ++i)
        if (from[i] == k)
          add(i, one);
      if (!one.keys.empty())
        runs.push_back(std::move(one));
    }
  x.runs = runs.size();
  for (const auto& each : runs)
    runs_.emplace(pages_.wanted_run(each, now), run{number, each.peer});
}

bool searching::on_run(const fetch_answer& answer) {
  const auto ended = runs_.extract(answer.requester);
  if (ended.empty())
    return false;
  const auto [number, peer] = ended.mapped();
  auto& x = searches_.at(number); // it does not end before its runs have
  x.fetched += answer.keys;
  for (auto& each : x.offers)
    if (each.peer == peer)
      each.made.insert(each.made.end(), answer.made.begin(), answer.made.end());
  if (--x.runs == 0)
    end(number);
  return true;
}

// -- the end ----------------------------------------------------------------------------------------------------------

void searching::release(entry& x) {
  for (auto& each : x.offers)
    if (each.lease != ticket{})
      outbox_.emplace_back(fetch_release{each.peer, x.ns, std::exchange(each.lease, {}),
                                         options_.keep_copies ? std::move(each.made) : std::vector<key_digest>{}});
}

void searching::end(search_number number) {
  auto& x = searches_.at(number);
  release(x);
  if (x.fetch != 0)
    outbox_.emplace_back(search_fetched{x.fetch, x.fetched});
  searches_.erase(number);
}

void searching::on_tick(timestamp now) {
  std::vector<namespace_id> waiting;
  for (const auto& [ns, x] : asking_)
    waiting.push_back(ns);
  for (const auto& ns : waiting)
    ask_queued(ns, now);
  std::vector<search_number> due;
  for (const auto& [number, x] : searches_)
    if (x.next <= now)
      due.push_back(number);
  for (const auto number : due) {
    auto& x = searches_.at(number);
    switch (x.at) {
    case phase::queued:
      if (const auto queue = asking_.find(x.ns); queue != asking_.end())
        std::erase(queue->second.queue, number);
      answer(number, x);
      break;
    case phase::asking:
      // Where the caller's time ends first, the peers are not late.
      for (const auto peer : now >= x.late_at ? x.asked : std::set<peer_number>{}) {
        ++pages_.counts_for(peer).late;
        outbox_.emplace_back(fetch_late{peer});
      }
      answer(number, x);
      break;
    case phase::held:
      // The caller does not fetch any more: it has ended, or another group has nothing.
      end(number);
      break;
    case phase::fetching:
      break;
    }
  }
  next_event_ = timestamp::max();
  // By another tick, when it is known outside which peers were late just now.
  for (const auto& [ns, x] : asking_)
    if (!x.queue.empty() && x.now < options_.asking_max)
      next_event_ = now;
  for (const auto& [number, x] : searches_)
    next_event_ = std::min(next_event_, x.next);
}

} // namespace troupe::cluster
