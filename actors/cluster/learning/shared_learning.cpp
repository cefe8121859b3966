#include "actors/cluster/learning/shared_learning.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::cluster {

namespace {

/// Weight of earlier rounds in the advance of a clock, at each new round.
constexpr double fading = 0.95;
/// A ratio beyond this is ignored: one of the two shards receives no keys.
constexpr double largest_pace = 1000;

} // namespace

void shared_learning::follow(const namespace_id& ns, std::uint32_t own, const std::vector<peer_shards>& peers) {
  auto& x = namespaces_[ns];
  const bool had_others = x.has_others();
  std::map<learning_shard, std::uint64_t> wanted;
  for (std::uint32_t i = 0; i < own; ++i)
    wanted.emplace(learning_shard{std::nullopt, i}, 0);
  for (const auto& peer : peers)
    for (std::uint32_t i = 0; i < peer.shards; ++i)
      wanted.emplace(learning_shard{peer.peer, i}, peer.incarnation);
  x.own = own;
  std::erase_if(x.shards, [&](const auto& known) {
    const auto found = wanted.find(known.first);
    return found == wanted.end() || found->second != known.second.incarnation;
  });
  for (const auto& [who, incarnation] : wanted)
    x.shards[who].incarnation = incarnation;
  if (!had_others || x.has_others())
    return;
  break_off(x);
  for (std::uint32_t i = 0; i < own; ++i)
    outbox_.emplace_back(teach_shard{ns, i, {}});
}

void shared_learning::forget(const namespace_id& ns) {
  const auto found = namespaces_.find(ns);
  if (found == namespaces_.end())
    return;
  break_off(found->second);
  namespaces_.erase(found);
}

void shared_learning::break_off(namespace_entry& x) {
  for (const auto& [call, who] : std::exchange(x.asked, {}))
    outbox_.emplace_back(cancel_shard{call});
  x.to_ask.clear();
  x.in_round = false;
}

void shared_learning::begin(namespace_entry& x, timestamp now) const {
  x.in_round = true;
  x.until = now + options_.limit;
  x.next = now + std::max<duration>(options_.pause, options_.pause_per_shard * x.shards.size());
  for (auto& [who, known] : x.shards) {
    known.notified = false;
    x.to_ask.push_back(who);
  }
}

void shared_learning::ask_more(const namespace_id& ns, namespace_entry& x) {
  while (!x.to_ask.empty() && x.asked.size() < options_.asked_at_once) {
    const auto who = x.to_ask.front();
    x.to_ask.pop_front();
    x.asked.emplace(++last_call_, who);
    outbox_.emplace_back(ask_shard{last_call_, ns, who});
  }
}

void shared_learning::on_time(timestamp now) {
  for (auto& [ns, x] : namespaces_) {
    if (x.in_round && now >= x.until) {
      break_off(x);
      end(ns, x);
    }
    if (x.in_round || now < x.next || !x.has_others() || !x.learns)
      continue;
    begin(x, now);
    ask_more(ns, x);
  }
}

void shared_learning::on_notified(reuse_call call, const result<reuse_reply>& notified) {
  const auto of = std::ranges::find_if(namespaces_, [call](const auto& s) { return s.second.asked.contains(call); });
  if (of == namespaces_.end())
    return;
  auto& [ns, x] = *of;
  const auto who = x.asked.extract(call).mapped();
  if (!who.peer && !notified && notified.error().code == errc::unsupported) {
    x.learns = false;
    return break_off(x);
  }
  // The shard may have disconnected meanwhile.
  const auto found = x.shards.find(who);
  auto counts = notified ? reuse_counts::of_numbers(notified->counts.items) : std::nullopt;
  if (found != x.shards.end() && counts) {
    auto& known = found->second;
    // The clock of a restarted shard runs backwards.
    if (known.has_clock && notified->clock >= known.clock)
      known.advance = known.advance * fading + static_cast<double>(notified->clock - known.clock);
    else
      known.advance = 0;
    known.notified = true;
    known.has_clock = true;
    known.clock = notified->clock;
    known.counts = *counts;
  }
  ask_more(ns, x);
  if (is_over(x))
    end(ns, x);
}

void shared_learning::end(const namespace_id& ns, namespace_entry& x) {
  x.in_round = false;
  for (auto& [who, known] : x.shards)
    if (!known.notified)
      known.counts = {};
  for (std::uint32_t own = 0; own < x.own; ++own) {
    const auto here = x.shards.find({std::nullopt, own});
    if (here == x.shards.end() || !here->second.notified)
      continue;
    teach_shard lesson{ns, own, {}};
    for (const auto& [who, known] : x.shards) {
      if (who == here->first || !known.notified)
        continue;
      const auto pace = here->second.advance / known.advance;
      // Until both have received keys, their ages are taken to be equal.
      const auto comparable = std::isfinite(pace) && pace > 1 / largest_pace && pace < largest_pace;
      lesson.counts += comparable ? known.counts.at_pace(pace) : known.counts;
    }
    outbox_.emplace_back(std::move(lesson));
  }
}

timestamp shared_learning::next_event() const {
  auto out = timestamp::max();
  for (const auto& [ns, x] : namespaces_)
    if (x.in_round)
      out = std::min(out, x.until);
    else if (x.has_others() && x.learns)
      out = std::min(out, x.next);
  return out;
}

std::uint64_t shared_learning::learned_from(peer_number peer) const {
  float sum = 0;
  for (const auto& [ns, x] : namespaces_)
    for (const auto& [who, known] : x.shards)
      if (who.peer == peer)
        sum += known.counts.seen();
  return static_cast<std::uint64_t>(sum);
}

} // namespace troupe::cluster
