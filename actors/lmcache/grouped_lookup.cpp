#include "actors/lmcache/grouped_lookup.hpp"

#include "actors/support/shard_batches.hpp"

#include <algorithm>
#include <numeric>

namespace troupe::lmcache {

grouped_lookup::grouped_lookup(terms how, std::vector<key_digest> keys, lease_source leases)
    : how_(std::move(how)), keys_(std::move(keys)), leases_(std::move(leases)) {
  how_.begin = std::min(how_.begin, static_cast<std::uint32_t>(keys_.size()));
  found_.assign(how_.groups.size(), std::vector<std::uint8_t>(keys_.size() - how_.begin, 0));
}

std::vector<group_needs> grouped_lookup::needs() const {
  std::vector<group_needs> out;
  for (const auto& x : how_.groups)
    out.push_back(x.needs);
  return out;
}

std::vector<key_digest> grouped_lookup::keys_of(std::span<const std::uint32_t> chunks) const {
  std::vector<key_digest> out;
  out.reserve(chunks.size());
  for (const auto chunk : chunks)
    out.push_back(keys_[how_.begin + chunk]);
  return out;
}

// -- here -------------------------------------------------------------------------------------------------------------

void grouped_lookup::start(timestamp now) {
  std::vector<std::uint32_t> all(keys_.size() - how_.begin);
  std::iota(all.begin(), all.end(), 0U);
  if (!all.empty())
    for (std::uint32_t group = 0; group < how_.groups.size(); ++group)
      look_up(group, all, now);
  if (waiting_ == 0)
    matched_all(now);
}

void grouped_lookup::look_up(std::uint32_t group, std::vector<std::uint32_t> chunks, timestamp now) {
  const auto& of = how_.groups[group];
  transfer::key_lookup::terms how{of.ns, of.shard_count, how_.lease_for};
  how.request = how_.request;
  const auto keys = keys_of(chunks);
  parts_.push_back({group, std::move(chunks), transfer::key_lookup(how, keys)});
  ++waiting_;
  parts_.back().keys.start(leases_(group), now);
  go_on(parts_.size() - 1);
}

void grouped_lookup::go_on(std::size_t number) {
  auto& x = parts_[number];
  auto effects = x.keys.take_outbox();
  for (auto& y : effects.matches)
    outbox_.emplace_back(match{number, y.part, x.group, y.shard, std::move(y.request)});
  for (auto& y : effects.releases)
    outbox_.emplace_back(release{x.group, y.shard, std::move(y.request)});
  const auto& outcome = x.keys.outcome();
  if (!outcome || std::exchange(x.ended, true))
    return;
  --waiting_;
  failed_ |= !*outcome;
  if (*outcome)
    for (std::size_t i = 0; i < x.chunks.size(); ++i)
      found_[x.group][x.chunks[i]] |= (*outcome)->found[i];
}

void grouped_lookup::on_match(std::size_t lookup, std::size_t part, result<match_reply> reply, timestamp now) {
  if (at_ == phase::ended)
    return;
  parts_[lookup].keys.on_match(part, std::move(reply), now);
  go_on(lookup);
  if (waiting_ == 0 && at_ == phase::matching)
    matched_all(now);
}

void grouped_lookup::matched_all(timestamp now) {
  const auto hit = longest_hit(needs(), found_, how_.begin);
  const bool may_ask = how_.has_peers && !failed_ && searched_ < searches_max && (searched_ == 0 || hit < goal_);
  if (may_ask && hit < keys_.size() && !how_.groups.empty())
    return begin_search(hit, now);
  end(hit);
}

// -- other nodes ------------------------------------------------------------------------------------------------------

void grouped_lookup::begin_search(std::uint32_t hit, timestamp now) {
  at_ = phase::searching;
  if (searched_++ == 0) {
    searched_at_ = now;
    deadline_ = later(now, how_.peers_limit);
  }
  searches_.assign(how_.groups.size(), {});
  for (std::uint32_t group = 0; group < how_.groups.size(); ++group) {
    auto& x = searches_[group];
    for (const auto chunk : chunks_missing(how_.groups[group].needs, found_[group], how_.begin, hit))
      x.chunks.push_back(chunk - how_.begin);
    x.answered = x.chunks.empty();
    if (!x.answered)
      outbox_.emplace_back(search{group, {how_.groups[group].ns, {keys_of(x.chunks)}, now - searched_at_}});
  }
}

void grouped_lookup::on_search(std::uint32_t group, const result<search_peers_reply>& reply) {
  if (at_ != phase::searching || searches_[group].answered) {
    // Too late: what was found is held for nothing.
    if (reply && reply->search != 0)
      outbox_.emplace_back(fetch{group, {how_.groups[group].ns, reply->search, {}, {}}});
    return;
  }
  auto& x = searches_[group];
  x.answered = true;
  if (reply) {
    x.number = reply->search;
    for (std::size_t i = 0; i < x.chunks.size() && i < reply->found.size(); ++i)
      if (reply->found[i] != 0 && x.number != 0)
        x.wanted.push_back(x.chunks[i]);
  }
  if (std::ranges::all_of(searches_, &searched_group::answered))
    searched_all();
}

void grouped_lookup::searched_all() {
  auto there = found_;
  for (std::size_t group = 0; group < searches_.size(); ++group)
    for (const auto chunk : searches_[group].wanted)
      there[group][chunk] = 1;
  const auto hit = longest_hit(needs(), found_, how_.begin);
  goal_ = longest_hit(needs(), there, how_.begin);
  at_ = phase::fetching;
  for (std::uint32_t group = 0; group < searches_.size(); ++group) {
    auto& x = searches_[group];
    const auto first = first_needed(how_.groups[group].needs, how_.begin, goal_) - how_.begin;
    std::erase_if(x.wanted,
                  [&](std::uint32_t chunk) { return goal_ <= hit || chunk < first || how_.begin + chunk >= goal_; });
    if (x.wanted.empty())
      continue;
    x.fetching = true;
    fetch_pages_request wanted{how_.groups[group].ns, std::exchange(x.number, 0), {keys_of(x.wanted)}, {}};
    if (how_.groups[group].needs.window_chunks == 0)
      for (const auto chunk : x.wanted)
        wanted.parents.items.push_back(how_.begin + chunk > 0 ? keys_[how_.begin + chunk - 1] : key_digest{});
    outbox_.emplace_back(fetch{group, std::move(wanted)});
  }
  end_searches();
  if (std::ranges::none_of(searches_, &searched_group::fetching))
    end(hit);
}

void grouped_lookup::end_searches() {
  for (std::uint32_t group = 0; group < searches_.size(); ++group)
    if (const auto number = std::exchange(searches_[group].number, 0); number != 0)
      outbox_.emplace_back(fetch{group, {how_.groups[group].ns, number, {}, {}}});
}

void grouped_lookup::on_fetch(std::uint32_t group, timestamp now) {
  if (at_ != phase::fetching || !std::exchange(searches_[group].fetching, false))
    return;
  if (std::ranges::none_of(searches_, &searched_group::fetching))
    fetched_all(now);
}

// Whatever the fetches have reported: another one may have brought the chunks meanwhile.
void grouped_lookup::fetched_all(timestamp now) {
  at_ = phase::matching;
  for (std::uint32_t group = 0; group < searches_.size(); ++group)
    if (!searches_[group].wanted.empty())
      look_up(group, std::exchange(searches_[group].wanted, {}), now);
  if (waiting_ == 0)
    matched_all(now);
}

// -- the end ----------------------------------------------------------------------------------------------------------

void grouped_lookup::on_tick(timestamp now) {
  if (at_ == phase::ended || now < deadline_)
    return;
  end_searches();
  for (const auto& x : parts_)
    if (!x.ended)
      release_all_of(x);
  end(longest_hit(needs(), found_, how_.begin));
}

void grouped_lookup::cancel() {
  if (at_ == phase::ended)
    return;
  end_searches();
  for (const auto& x : parts_)
    if (!x.ended)
      release_all_of(x);
  end(how_.begin);
}

void grouped_lookup::give_back() {
  if (!outcome_)
    return;
  for (const auto& x : outcome_->leases)
    for (const auto shard : x.shards)
      outbox_.emplace_back(release{x.group, shard, {how_.groups[x.group].ns, x.lease, 0}});
  outcome_ = finding{how_.begin, {}};
}

void grouped_lookup::release_all_of(const part_lookup& x) {
  const auto& of = how_.groups[x.group];
  for (const auto& shard : transfer::split_by_shard(keys_of(x.chunks), of.shard_count))
    outbox_.emplace_back(release{x.group, shard.shard, {of.ns, x.keys.lease(), 0}});
}

void grouped_lookup::end(std::uint32_t hit) {
  at_ = phase::ended;
  deadline_ = timestamp::max();
  finding out;
  out.hit = hit;
  for (const auto& x : parts_)
    if (x.ended && *x.keys.outcome())
      keep(x, hit, out);
  outcome_ = std::move(out);
}

void grouped_lookup::keep(const part_lookup& x, std::uint32_t hit, finding& out) {
  const auto& of = how_.groups[x.group];
  const auto& found = **x.keys.outcome();
  const auto first = first_needed(of.needs, how_.begin, hit);
  std::vector<std::uint32_t> needed;
  for (std::size_t i = 0; i < x.chunks.size(); ++i)
    if (const auto chunk = how_.begin + x.chunks[i]; found.found[i] != 0 && chunk >= first && chunk < hit)
      needed.push_back(x.chunks[i]);
  auto kept = transfer::split_by_shard(keys_of(needed), of.shard_count);
  held lease{x.group, x.keys.lease(), {}};
  for (const auto shard : found.shards) {
    release back{x.group, shard, {of.ns, lease.lease, 0}};
    for (auto& y : kept)
      if (y.shard == shard) {
        back.request.retained.items = std::move(y.items);
        lease.shards.push_back(shard);
      }
    outbox_.emplace_back(std::move(back));
  }
  if (lease.shards.empty())
    return;
  out.leases.push_back(std::move(lease));
  out.expires = std::min(out.expires, found.expires);
}

} // namespace troupe::lmcache
