#include "actors/cluster/pages/fetching.hpp"

#include "messages/answer_codes.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

void sending_counts::add(const result<transfer_result>& outcome, std::size_t pages) {
  for (std::size_t i = 0; i < pages; ++i)
    failed += code_at(outcome, i) == errc::ok ? 0 : 1;
  if (!outcome)
    return;
  from_files += outcome->from_files;
  files_stale += outcome->files_stale;
  files_damaged += outcome->files_damaged;
  files_failed += outcome->files_failed;
}

void fetching::add_namespace(const namespace_id& ns, std::uint64_t page_bytes, std::uint32_t ranks,
                             std::uint32_t blocks, std::uint32_t copies_at_once) {
  namespaces_.emplace(ns, namespace_entry{std::max<std::uint64_t>(page_bytes, 1),
                                          std::max(copies_at_once, 1U),
                                          false,
                                          std::vector<block_free_list>(ranks, block_free_list(blocks)),
                                          std::vector<std::map<peer_number, std::size_t>>(ranks),
                                          {}});
}

void fetching::remove_namespace(const namespace_id& ns) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end())
    return;
  found->second.removed = true;
  found->second.on_their_way.clear();
  bool in_use = false;
  for (auto& [number, x] : rounds_)
    if (x.ns == ns) {
      in_use = true;
      x.ask_until = x.until = next_event_ = timestamp{}; // by the next tick
    }
  if (!in_use)
    namespaces_.erase(found);
}

fetch_counts fetching::counts(peer_number peer) const {
  const auto found = counts_.find(peer);
  return found == counts_.end() ? fetch_counts{} : found->second;
}

fetch_counts& fetching::counts_for(peer_number peer) {
  const auto found = counts_.find(peer);
  return found == counts_.end() ? unknown_ : found->second;
}

std::size_t fetching::blocks_in_use() const {
  std::size_t out = 0;
  for (const auto& [id, x] : namespaces_)
    for (const auto& free_list : x.shelves)
      out += free_list.in_use();
  return out;
}

std::uint32_t fetching::here(const round& x) {
  auto out = x.limit;
  for (const auto& rank : x.ranks)
    out = std::min(out, rank.here);
  return x.moving ? out : 0;
}

std::uint32_t fetching::reached(const round& x, const waiting& requester) {
  const auto all = here(x);
  return all <= requester.first ? 0 : std::min(all - requester.first, requester.count);
}

std::size_t fetching::moving_from(peer_number peer) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(rounds_, [&](const auto& x) { return x.second.moving && x.second.source.peer == peer; }));
}

void fetching::answer(prefix_fetch_number requester, std::uint32_t keys) {
  fetch_answer out{requester, keys};
  if (auto ended = waiting_.extract(requester); !ended.empty() && ended.mapped().source)
    out.made = std::move(ended.mapped().source->made);
  outbox_.emplace_back(std::move(out));
}

// -- callers that wait ------------------------------------------------------------------------------------------------

prefix_fetch_number fetching::wanted_prefix(const prefix_fetch_request& wanted, timestamp now) {
  waiting x;
  x.wanted = wanted;
  x.until = later(now, options_.wait_limit - std::clamp(wanted.waited, duration::zero(), options_.wait_limit));
  return wait(std::move(x), now);
}

prefix_fetch_number fetching::wanted_run(const fetch_run& wanted, timestamp now) {
  waiting x;
  x.wanted = {wanted.ns, wanted.parent, {wanted.keys}, {}};
  x.until = wanted.until;
  x.source = waiting::known_source{wanted.peer, wanted.chained, 0, false, {}};
  return wait(std::move(x), now);
}

prefix_fetch_number fetching::wait(waiting x, timestamp now) {
  const auto requester = ++last_waiting_;
  if (waiting_.size() >= options_.waiting_max) {
    outbox_.emplace_back(fetch_answer{requester, 0});
    return requester;
  }
  next_event_ = std::min(next_event_, x.until);
  waiting_.emplace(requester, std::move(x));
  go_on(requester, now);
  return requester;
}

void fetching::go_on(prefix_fetch_number requester, timestamp now) {
  auto& x = waiting_.at(requester);
  const auto ns = namespaces_.find(x.wanted.ns);
  if (x.have >= x.wanted.keys.size() || ns == namespaces_.end() || ns->second.removed || x.until <= now)
    return answer(requester, x.have);
  const auto& coming = ns->second.on_their_way;
  if (const auto found = coming.find(x.wanted.keys[x.have]); found != coming.end())
    return wait_for(x, found->second);
  if (!(x.source ? begin_run(x, now) : begin_round(x, now)))
    answer(requester, x.have);
}

void fetching::wait_for(waiting& x, const place& where) {
  const auto& keys = rounds_.at(where.round).keys;
  x.round = where.round;
  x.first = where.position;
  x.count = 0;
  while (x.have + x.count < x.wanted.keys.size() && x.first + x.count < keys.size() &&
         x.wanted.keys[x.have + x.count] == keys[x.first + x.count])
    ++x.count;
}

bool fetching::begin_round(waiting& requester, timestamp now) {
  if (rounds_.size() >= options_.rounds_max)
    return false;
  auto peers = options_.peers(requester.wanted.ns);
  std::erase_if(peers, [&](peer_number p) { return std::ranges::find(requester.used, p) != requester.used.end(); });
  if (peers.empty())
    return false;
  auto& x = new_round(requester, now);
  x.ask_until = later(now, options_.ask_limit);
  next_event_ = std::min(next_event_, x.ask_until);
  x.asked = peers;
  for (const auto peer : peers) {
    count_asked(peer);
    calls_.emplace(++last_call_, call{last_round_, x.ns, peer, 0, 0, {}});
    outbox_.emplace_back(fetch_ask{last_call_, peer, x.ns, x.keys});
  }
  return true;
}

bool fetching::begin_run(waiting& requester, timestamp now) {
  auto& source = *requester.source;
  if (source.failed)
    return false;
  auto& x = new_round(requester, now);
  x.is_run = true;
  x.chained = source.chained;
  source.own = last_round_;
  const auto pages = static_cast<std::uint32_t>(x.keys.size());
  x.source = {source.peer, pages, {}};
  begin_moving(x, pages);
  pump(x.ns, now);
  return true;
}

fetching::round& fetching::new_round(waiting& requester, timestamp now) {
  const auto number = ++last_round_;
  auto& x = rounds_[number];
  x.ns = requester.wanted.ns;
  x.parent = requester.have > 0 ? requester.wanted.keys[requester.have - 1] : requester.wanted.parent;
  x.keys.assign(requester.wanted.keys.begin() + requester.have, requester.wanted.keys.end());
  x.until = later(now, options_.move_limit);
  next_event_ = std::min(next_event_, x.until);
  auto& coming = namespaces_.at(x.ns).on_their_way;
  // The round ends before the first key that is in another round; the caller waits for that round.
  for (std::uint32_t i = 0; i < x.keys.size(); ++i)
    if (!coming.emplace(x.keys[i], place{number, i}).second)
      x.keys.resize(i);
  wait_for(requester, {number, 0});
  return x;
}

void fetching::begin_moving(round& x, std::uint32_t limit) {
  x.moving = true;
  x.ranks.resize(namespaces_.at(x.ns).shelves.size());
  for (auto& rank : x.ranks) {
    rank.done.resize(limit);
    rank.made.resize(limit);
  }
  x.limit = static_cast<std::uint32_t>(x.keys.size());
  cut(x, limit);
}

// -- asking -----------------------------------------------------------------------------------------------------------

void fetching::on_found(fetch_call number, const result<lookup_result>& found, timestamp now) {
  const auto ended = calls_.extract(number);
  if (ended.empty())
    return;
  const auto& what = ended.mapped();
  const bool has_some = found && found->matched > 0;
  const auto at = rounds_.find(what.round);
  if (at == rounds_.end() || at->second.moving || std::erase(at->second.asked, what.peer) == 0) {
    if (has_some)
      outbox_.emplace_back(fetch_release{what.peer, what.ns, found->lease});
    return;
  }
  auto& x = at->second;
  if (has_some) {
    ++counts_for(what.peer).had;
    x.offers.push_back({what.peer, std::min(found->matched, static_cast<std::uint32_t>(x.keys.size())), found->lease});
  }
  if (x.asked.empty() || (has_some && !is_dead(what.peer) && found->matched >= x.keys.size()))
    choose(what.round, now);
}

void fetching::choose(round_number number, timestamp now) {
  auto& x = rounds_.at(number);
  x.asked.clear();
  // Among peers with equally many keys, a live one is preferred, then a less busy one.
  const auto best = std::ranges::max_element(x.offers, [this](const offer& a, const offer& b) {
    if (a.keys != b.keys)
      return a.keys < b.keys;
    return is_dead(a.peer) != is_dead(b.peer) ? is_dead(a.peer) : moving_from(a.peer) > moving_from(b.peer);
  });
  auto& ns = namespaces_.at(x.ns);
  if (best == x.offers.end() || ns.removed) {
    for (const auto& other : x.offers)
      outbox_.emplace_back(fetch_release{other.peer, x.ns, other.lease});
    return end_round(number, now);
  }
  x.source = *best;
  for (const auto& other : x.offers)
    if (other.peer != x.source.peer)
      outbox_.emplace_back(fetch_release{other.peer, x.ns, other.lease});
  begin_moving(x, x.source.keys);
  pump(x.ns, now);
}

void fetching::cut(round& x, std::uint32_t limit) {
  if (limit >= x.limit)
    return;
  auto& coming = namespaces_.at(x.ns).on_their_way;
  // Callers that miss these keys from now on start a round of their own.
  for (auto i = limit; i < x.limit; ++i)
    if (const auto found = coming.find(x.keys[i]); found != coming.end() && &rounds_.at(found->second.round) == &x)
      coming.erase(found);
  x.limit = limit;
}

// -- moving -----------------------------------------------------------------------------------------------------------

std::size_t fetching::pages_of_chunk(const namespace_entry& ns, std::size_t blocks, std::uint32_t pages) const {
  const auto fit = [&](std::uint64_t bytes) {
    return std::min<std::size_t>(bytes / ns.page_bytes, options_.chunk_pages);
  };
  const std::size_t copies = ns.copies_at_once;
  const auto share = (pages + copies - 1) / copies;
  // Half of the blocks are left for the next chunk, which arrives while one is copied.
  const auto most = std::min(fit(options_.chunk_bytes_max), blocks / (2 * copies));
  return std::max({std::min(share, most), fit(options_.chunk_bytes_min), std::size_t{1}});
}

std::size_t fetching::blocks_for(const namespace_entry& ns, std::uint32_t rank, peer_number peer, bool shared) {
  constexpr std::size_t times_free = 3;
  const auto free = ns.shelves[rank].free();
  if (!shared || free == 0)
    return free;
  const auto found = ns.held[rank].find(peer);
  const std::size_t held = found == ns.held[rank].end() ? 0 : found->second;
  // The most `n` with held + n <= 3 (free - n); one block in any case for a peer that has none.
  const auto more = held >= times_free * free ? 0 : (times_free * free - held) / (times_free + 1);
  return more == 0 && held == 0 ? 1 : more;
}

void fetching::pump(const namespace_id& ns, timestamp now) {
  auto& entry = namespaces_.at(ns);
  const bool shared = options_.peers(ns).size() > 1;
  for (auto& [number, x] : rounds_) {
    if (x.ns != ns || !x.moving)
      continue;
    for (std::uint32_t rank = 0; rank < x.ranks.size(); ++rank) {
      auto& free_list = entry.shelves[rank];
      const auto together = pages_of_chunk(entry, free_list.size(), x.source.keys);
      while (x.ranks[rank].next < x.limit) {
        const auto count = std::min<std::size_t>(
            {together, std::size_t{x.limit} - x.ranks[rank].next, blocks_for(entry, rank, x.source.peer, shared)});
        if (count == 0)
          break;
        entry.held[rank][x.source.peer] += count;
        move(number, x, rank, free_list.take(count), now);
      }
    }
  }
}

void fetching::move(round_number number, round& x, std::uint32_t rank, std::vector<std::uint32_t> blocks,
                    timestamp now) {
  const auto first = x.ranks[rank].next;
  fetch_move effect{++last_call_, x.source.peer, x.ns, rank, {}};
  effect.work.keys.items.assign(x.keys.begin() + first,
                                x.keys.begin() + first + static_cast<std::ptrdiff_t>(blocks.size()));
  effect.work.blocks.items = blocks;
  effect.work.chained = x.chained;
  if (x.chained)
    effect.work.parent = first > 0 ? x.keys[first - 1] : x.parent;
  effect.work.deadline = std::max<duration>(x.until - now, std::chrono::milliseconds(1));
  effect.work.origin = options_.keep_copies ? page_origin::fetched : page_origin::transient;
  x.ranks[rank].next += static_cast<std::uint32_t>(blocks.size());
  ++x.calls;
  calls_.emplace(effect.call, call{number, x.ns, x.source.peer, rank, first, std::move(blocks)});
  outbox_.emplace_back(std::move(effect));
}

void fetching::on_moved(fetch_call number, const result<transfer_result>& outcome, const sending_counts& sent,
                        timestamp now) {
  const auto ended = calls_.extract(number);
  if (ended.empty())
    return;
  const auto& what = ended.mapped();
  auto& x = rounds_.at(what.round); // it does not end before its calls have
  auto& ns = namespaces_.at(what.ns);
  auto& rank = x.ranks[what.rank];
  auto& counts = counts_for(what.peer);
  counts.failed += sent.failed;
  counts.file_pages += sent.from_files;
  counts.file_bytes += sent.from_files * ns.page_bytes;
  counts.files_stale += sent.files_stale;
  counts.files_damaged += sent.files_damaged;
  counts.files_failed += sent.files_failed;
  for (std::uint32_t i = 0; i < what.blocks.size(); ++i) {
    const auto code = code_at(outcome, i);
    if (code == errc::ok) {
      rank.made[what.first + i] = 1;
      ++counts.pages;
      counts.bytes += ns.page_bytes;
    }
    if (code == errc::ok || code == errc::exists)
      rank.done[what.first + i] = 1;
    else
      cut(x, what.first + i);
  }
  while (rank.here < rank.done.size() && rank.done[rank.here] != 0)
    ++rank.here;
  ns.shelves[what.rank].give_back(what.blocks);
  if (auto held = ns.held[what.rank].find(what.peer); (held->second -= what.blocks.size()) == 0)
    ns.held[what.rank].erase(held);
  --x.calls;
  pump(what.ns, now);
  look_after(what.round, now);
}

void fetching::look_after(round_number number, timestamp now) {
  const auto& x = rounds_.at(number);
  const bool begun_with_all = std::ranges::all_of(x.ranks, [&](const auto& rank) { return rank.next >= x.limit; });
  if (x.moving && x.calls == 0 && begun_with_all)
    return end_round(number, now);
  // A caller that shares only the head of the round does not wait for its tail.
  std::vector<prefix_fetch_number> done;
  for (const auto& [requester, w] : waiting_)
    if (w.round == number && reached(x, w) == w.count)
      done.push_back(requester);
  for (const auto requester : done) {
    auto& w = waiting_.at(requester);
    w.have += w.count;
    w.round = 0;
    w.used.clear();
    go_on(requester, now);
  }
}

std::vector<key_digest> fetching::made_by(const round& x) {
  std::vector<key_digest> out;
  for (std::uint32_t i = 0; i < here(x); ++i)
    if (std::ranges::all_of(x.ranks, [&](const auto& rank) { return rank.made[i] != 0; }))
      out.push_back(x.keys[i]);
  return out;
}

void fetching::end_round(round_number number, timestamp now) {
  auto& x = rounds_.at(number);
  auto& ns = namespaces_.at(x.ns);
  cut(x, here(x));
  for (const auto& key : x.keys)
    if (const auto found = ns.on_their_way.find(key); found != ns.on_their_way.end() && found->second.round == number)
      ns.on_their_way.erase(found);
  const auto made = options_.keep_copies ? made_by(x) : std::vector<key_digest>{};
  if (x.moving && !x.is_run)
    outbox_.emplace_back(fetch_release{x.source.peer, x.ns, x.source.lease, made});
  std::vector<std::pair<prefix_fetch_number, bool>> next;
  for (auto& [requester, w] : waiting_)
    if (w.round == number) {
      const auto got = reached(x, w);
      w.have += got;
      w.round = 0;
      if (w.source && w.source->own == number) {
        w.source->failed = got < w.count;
        w.source->made.insert(w.source->made.end(), made.begin(), made.end());
      }
      // Peers that were asked before may have the next keys now that this node has more of them.
      if (!x.moving || got > 0)
        w.used.clear();
      // The source was asked for the next key, and does not have it or did not send it.
      if (x.moving && got < w.count)
        w.used.push_back(x.source.peer);
      next.emplace_back(requester, x.moving);
    }
  const auto ended = x.ns;
  rounds_.erase(number);
  if (ns.removed && std::ranges::none_of(rounds_, [&](const auto& r) { return r.second.ns == ended; }))
    namespaces_.erase(ended);
  // Where no peer had anything, asking again at once is useless.
  for (const auto& [requester, go] : next) {
    if (go)
      go_on(requester, now);
    else
      answer(requester, waiting_.at(requester).have);
  }
}

void fetching::on_tick(timestamp now) {
  std::vector<round_number> open;
  for (const auto& [number, x] : rounds_)
    open.push_back(number);
  for (const auto number : open) {
    const auto at = rounds_.find(number);
    if (at == rounds_.end())
      continue;
    auto& x = at->second;
    if (!x.moving && x.ask_until <= now) {
      if (!namespaces_.at(x.ns).removed)
        for (const auto peer : x.asked) {
          ++counts_for(peer).late;
          outbox_.emplace_back(fetch_late{peer});
        }
      choose(number, now);
    } else if (x.moving && x.until <= now) {
      cut(x, here(x));
      look_after(number, now);
    }
  }
  std::vector<std::pair<prefix_fetch_number, std::uint32_t>> late;
  for (const auto& [requester, w] : waiting_)
    if (w.until <= now) {
      const auto at = rounds_.find(w.round);
      late.emplace_back(requester, w.have + (at == rounds_.end() ? 0 : reached(at->second, w)));
    }
  for (const auto& [requester, keys] : late)
    answer(requester, keys);
  next_event_ = timestamp::max();
  for (const auto& [number, x] : rounds_)
    next_event_ = std::min(next_event_, x.moving ? x.until : x.ask_until);
  for (const auto& [requester, w] : waiting_)
    next_event_ = std::min(next_event_, w.until);
}

} // namespace troupe::cluster
