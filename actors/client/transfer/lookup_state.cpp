#include "actors/client/transfer/lookup_state.hpp"

#include "actors/client/transfer/coordinator_core.hpp"

#include <algorithm>
#include <utility>

namespace troupe::transfer {

void lookup_state::unbind(errc status) {
  for (auto& [id, x] : lookups_)
    outbox_.emplace_back(lookup_finished{id, fail(status, "the node was lost during a lookup")});
  lookups_.clear();
  calls_.clear();
  held_.clear();
  binding_ = binding{};
}

result<lookup_id> lookup_state::start(const lookup_task& work, timestamp now) {
  if (!bound())
    return fail(errc::unreachable, "not attached to a node");
  if (work.keys.size() > binding_.batch_keys_max)
    return fail(errc::limit_exceeded, std::to_string(work.keys.size()) + " keys in one lookup; the node takes " +
                                          std::to_string(binding_.batch_keys_max));
  if (work.lease_for <= duration::zero() || work.lease_for > binding_.lease_max)
    return fail(errc::invalid_argument, "a lookup must hold its answer for more than zero and at most the node's "
                                        "longest lease");
  if (lookups_.size() >= lookups_max_)
    return fail(errc::limit_exceeded, std::to_string(lookups_max_) + " lookups are under way, which is the limit");
  const auto id = ++last_id_;
  auto& x = lookups_[id];
  x.work = work;
  x.deadline = later(now, time_limit_);
  for (auto& split : split_by_shard(work.keys.items, binding_.shard_count))
    x.parts.push_back(part{split.shard, std::move(split.positions), 0, {}, false});
  send_matches(id, x);
  if (x.waiting == 0)
    finish(id, x, now);
  return id;
}

void lookup_state::send_matches(lookup_id id, lookup& x) {
  x.lease = make_ticket(binding_.owner, binding_.ticket_stream, ++last_lease_);
  x.waiting = x.parts.size();
  for (std::size_t i = 0; i < x.parts.size(); ++i)
    send_match(id, x, i);
}

void lookup_state::send_match(lookup_id id, lookup& x, std::size_t part_index) {
  const auto& p = x.parts[part_index];
  lookup_match effect{++last_call_, p.shard, {binding_.space, x.lease, x.work.lease_for, {}}};
  effect.request.tell_on_disk = x.work.tell_on_disk;
  effect.request.keys.items.reserve(p.positions.size());
  for (const auto i : p.positions)
    effect.request.keys.items.push_back(x.work.keys[i]);
  calls_.emplace(effect.call, call{id, part_index});
  outbox_.emplace_back(std::move(effect));
}

void lookup_state::on_match(std::uint64_t call_number, result<match_reply> reply, timestamp now) {
  const auto found = calls_.find(call_number);
  if (found == calls_.end())
    return;
  const auto what = found->second;
  calls_.erase(found);
  const auto i = lookups_.find(what.owner);
  if (i == lookups_.end())
    return;
  auto& x = i->second;
  auto& p = x.parts[what.part];
  if (!reply && reply.error().code == errc::timeout && now < x.deadline) {
    send_match(what.owner, x, what.part); // the same lease again: the shard adds nothing twice
    return;
  }
  p.answered = true;
  if (reply) {
    p.matched = std::min(reply->matched, static_cast<std::uint32_t>(p.positions.size()));
    p.on_disk = std::move(reply->on_disk.items);
  } else
    x.failure = reply.error();
  if (--x.waiting == 0)
    finish(what.owner, x, now);
}

void lookup_state::finish(lookup_id id, lookup& x, timestamp now) {
  if (x.failure.code != errc::ok) {
    release_everywhere(x);
    if (x.at == phase::matching_again)
      return answer(id, std::move(x.before));
    outbox_.emplace_back(lookup_finished{id, tl::unexpected<error>(x.failure)});
    lookups_.erase(id);
    return;
  }
  auto found = settle(x, now);
  const bool again = x.at == phase::matching_again;
  if (again)
    release_finding(x.before);
  // Behind what was brought there may be a part that was here, and behind that one which others have.
  if (binding_.has_peers && found.matched < x.work.keys.size() && x.asked < brings_max &&
      (!again || found.matched > x.brought)) {
    x.before = std::move(found);
    return send_bring(id, x, now);
  }
  answer(id, std::move(found));
}

lookup_state::finding lookup_state::settle(const lookup& x, timestamp now) {
  finding out;
  out.matched = matched_prefix(x.parts, x.work.keys.size());
  out.record.expires = later(now, x.work.lease_for);
  for (const auto& p : x.parts) {
    const auto keep = positions_within(p.positions, out.matched);
    if (p.matched > keep)
      outbox_.emplace_back(lookup_release{0, p.shard, {binding_.space, x.lease, keep}});
    if (keep > 0)
      out.record.shards.push_back(p.shard);
  }
  if (out.matched > 0) {
    out.lease = x.lease;
    if (x.work.tell_on_disk)
      out.on_disk = joined_on_disk(x, out.matched);
  }
  return out;
}

void lookup_state::answer(lookup_id id, finding found) {
  if (found.matched > 0)
    held_.emplace(found.lease, std::move(found.record));
  outbox_.emplace_back(lookup_finished{id, lookup_result{found.matched, found.lease, std::move(found.on_disk)}});
  lookups_.erase(id);
}

void lookup_state::release_finding(const finding& x) {
  for (const auto shard : x.record.shards)
    outbox_.emplace_back(lookup_release{0, shard, {binding_.space, x.lease, 0}});
}

void lookup_state::send_bring(lookup_id id, lookup& x, timestamp now) {
  x.at = phase::bringing;
  if (x.asked++ == 0)
    x.asked_at = now;
  const auto& keys = x.work.keys.items;
  const auto first = x.before.matched;
  lookup_bring effect{++last_call_, {binding_.space, first > 0 ? keys[first - 1] : key_digest{}, {}}};
  effect.request.waited = now - x.asked_at;
  effect.request.keys.items.assign(keys.begin() + first, keys.end());
  calls_.emplace(effect.call, call{id, 0});
  outbox_.emplace_back(std::move(effect));
}

void lookup_state::on_bring(std::uint64_t call_number, result<bring_reply> reply, timestamp) {
  const auto found = calls_.extract(call_number);
  if (found.empty())
    return;
  const auto id = found.mapped().owner;
  const auto i = lookups_.find(id);
  if (i == lookups_.end())
    return;
  auto& x = i->second;
  if (!reply || reply->keys == 0)
    return answer(id, std::move(x.before));
  x.at = phase::matching_again;
  x.brought = x.before.matched + reply->keys;
  for (auto& p : x.parts)
    p = part{p.shard, std::move(p.positions), 0, {}, false};
  send_matches(id, x);
}

packed<std::uint8_t> lookup_state::joined_on_disk(const lookup& x, std::uint32_t matched) {
  std::vector<std::uint8_t> out(matched, 0);
  for (const auto& p : x.parts) {
    const auto count = positions_within(p.positions, matched);
    if (p.on_disk.size() < count)
      return {};
    for (std::uint32_t i = 0; i < count; ++i)
      out[p.positions[i]] = p.on_disk[i] != 0 ? 1 : 0;
  }
  return out;
}

void lookup_state::release_everywhere(const lookup& x) {
  for (const auto& p : x.parts)
    outbox_.emplace_back(lookup_release{0, p.shard, {binding_.space, x.lease, 0}});
}

result<void> lookup_state::release(const ticket& lease, timestamp, const std::vector<key_digest>& kept_there) {
  if (kept_there.size() > binding_.batch_keys_max)
    return fail(errc::limit_exceeded, "more keys than one lookup finds");
  const auto i = held_.find(lease);
  if (i == held_.end())
    return fail(errc::not_found, "no such lease: released before, run out, or of another node");
  const auto parts = split_by_shard(kept_there, binding_.shard_count);
  for (const auto shard : i->second.shards) {
    lookup_release effect{0, shard, {binding_.space, lease, 0}};
    for (const auto& kept : parts)
      if (kept.shard == shard)
        effect.request.kept_there.items = kept.items;
    outbox_.emplace_back(std::move(effect));
  }
  held_.erase(i);
  return {};
}

void lookup_state::on_tick(timestamp now) {
  std::vector<lookup_id> late;
  for (const auto& [id, x] : lookups_)
    if (x.deadline <= now)
      late.push_back(id);
  std::sort(late.begin(), late.end());
  for (const auto id : late) {
    auto& x = lookups_.at(id);
    if (x.at != phase::bringing)
      release_everywhere(x);
    if (x.at != phase::matching) {
      answer(id, std::move(x.before));
      continue;
    }
    outbox_.emplace_back(lookup_finished{id, fail(errc::timeout, "the registry did not answer in time")});
    lookups_.erase(id);
  }
  for (auto i = held_.begin(); i != held_.end();)
    i = i->second.expires <= now ? held_.erase(i) : std::next(i);
}

std::vector<lookup_effect> lookup_state::take_outbox() {
  return std::exchange(outbox_, {});
}

} // namespace troupe::transfer
