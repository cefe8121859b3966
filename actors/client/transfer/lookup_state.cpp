#include "actors/client/transfer/lookup_state.hpp"

#include "actors/client/transfer/coordinator_core.hpp"
#include "actors/support/shard_batches.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace troupe::transfer {

void lookup_state::unbind(errc status) {
  for (auto& [id, x] : lookups_)
    outbox_.emplace_back(lookup_finished{id, fail(status, "the node was lost during a lookup")});
  lookups_.clear();
  calls_.clear();
  peers_.clear();
  held_.clear();
  binding_ = binding{};
}

result<lookup_id> lookup_state::start(const lookup_task& work, timestamp now) {
  if (!bound())
    return fail(errc::unreachable, "not attached to a node");
  if (work.lease_for <= duration::zero())
    return fail(errc::invalid_argument, "the lease of a lookup must be longer than zero");
  if (work.peers.what == peer_step::kind::fetch && work.keys.empty()) {
    // Before the limit, because this releases and waits for nothing.
    end_search(work.peers.search);
    outbox_.emplace_back(lookup_finished{++last_id_, lookup_result{}});
    return last_id_;
  }
  if (lookups_.size() >= lookups_max_)
    return fail(errc::limit_exceeded, std::to_string(lookups_max_) + " lookups are in progress, which is the limit");
  const auto id = ++last_id_;
  const auto keys = std::span(work.keys.items).first(std::min<std::size_t>(work.keys.size(), binding_.batch_keys_max));
  const auto lease_for = std::min(work.lease_for, binding_.lease_max);
  const auto deadline = later(now, time_limit_);
  const auto begin = [&](auto made) {
    made.start(new_lease(), now);
    go_on(id, lookups_.emplace(id, std::move(made)).first->second, now);
  };
  const key_lookup::terms each{binding_.ns, binding_.shard_count, lease_for, work.report_on_disk,
                               deadline,    work.request};
  if (work.peers.what != peer_step::kind::none) {
    auto step = work;
    step.keys.items.resize(keys.size());
    if (!step.peers.parents.empty())
      step.peers.parents.items.resize(keys.size());
    if (binding_.has_peers)
      begin(peer_lookup(each, step));
    else // nothing to search or to wait for
      outbox_.emplace_back(lookup_finished{id, lookup_result{}});
    return id;
  }
  if (work.each) {
    begin(key_lookup(each, keys));
    return id;
  }
  prefix_fetch::terms how{binding_.ns,         binding_.shard_count, lease_for,
                          work.report_on_disk, binding_.has_peers,   deadline};
  how.request = work.request;
  begin(prefix_fetch(how, {keys.begin(), keys.end()}));
  return id;
}

ticket lookup_state::new_lease() {
  return make_ticket(binding_.owner, binding_.ticket_stream, ++last_lease_);
}

std::uint64_t lookup_state::call_peers(lookup_id id, timestamp now) {
  peers_[id].asked(now);
  calls_.emplace(++last_call_, call{id, 0});
  return last_call_;
}

void lookup_state::send_requests(lookup_id id, prefix_fetch& x, timestamp now) {
  for (auto& effect : x.take_outbox()) {
    if (auto* match = std::get_if<prefix_fetch::match>(&effect)) {
      calls_.emplace(++last_call_, call{id, match->part});
      outbox_.emplace_back(lookup_match{last_call_, match->shard, std::move(match->request)});
    } else if (auto* wanted_prefix = std::get_if<prefix_fetch::wanted_prefix>(&effect)) {
      outbox_.emplace_back(lookup_prefix_fetch{call_peers(id, now), std::move(wanted_prefix->request)});
    } else {
      auto& release = std::get<prefix_fetch::release>(effect);
      outbox_.emplace_back(lookup_release{0, release.shard, std::move(release.request)});
    }
  }
}

void lookup_state::send_requests(lookup_id id, key_lookup& x, timestamp) {
  send(id, x.take_outbox());
}

void lookup_state::send_requests(lookup_id id, peer_lookup& x, timestamp now) {
  auto effects = x.take_outbox();
  if (effects.search)
    outbox_.emplace_back(lookup_search{call_peers(id, now), std::move(*effects.search)});
  if (effects.fetch)
    outbox_.emplace_back(lookup_fetch{call_peers(id, now), std::move(*effects.fetch)});
  send(id, std::move(effects.lookup));
}

void lookup_state::end_search(std::uint64_t search) {
  if (search != 0 && binding_.has_peers)
    outbox_.emplace_back(lookup_fetch{0, {binding_.ns, search, {}, {}}});
}

void lookup_state::send(lookup_id id, key_lookup::effects effects) {
  for (auto& match : effects.matches) {
    calls_.emplace(++last_call_, call{id, match.part});
    outbox_.emplace_back(lookup_match{last_call_, match.shard, std::move(match.request)});
  }
  for (auto& release : effects.releases)
    outbox_.emplace_back(lookup_release{0, release.shard, std::move(release.request)});
}

void lookup_state::finish(lookup_id id, result<lookup_result> answer) {
  if (const auto peers = peers_.extract(id); !peers.empty() && answer)
    answer->peers = peers.mapped().share;
  outbox_.emplace_back(lookup_finished{id, std::move(answer)});
}

void lookup_state::answer(lookup_id id, const prefix_fetch& x) {
  const auto& found = *x.outcome();
  if (!found)
    return finish(id, tl::unexpected<error>(found.error()));
  if (found->matched > 0)
    held_.emplace(found->lease, lease_record{found->shards, found->expires});
  lookup_result out{found->matched, found->lease, found->on_disk, x.lease_for()};
  finish(id, std::move(out));
}

void lookup_state::answer(lookup_id id, const key_lookup& x) {
  answer(id, x, *x.outcome());
}

void lookup_state::answer(lookup_id id, const peer_lookup& x) {
  if (const auto& searched = x.searched()) {
    if (!*searched)
      return finish(id, tl::unexpected<error>(searched->error()));
    lookup_result out;
    out.found = (*searched)->found;
    out.search = (*searched)->search;
    return finish(id, std::move(out));
  }
  answer(id, x.keys(), *x.looked_up());
}

void lookup_state::answer(lookup_id id, const key_lookup& x, const result<key_lookup::finding>& found) {
  if (!found)
    return finish(id, tl::unexpected<error>(found.error()));
  lookup_result out{found->matched, {}, found->on_disk, x.lease_for(), found->found};
  out.has_peers = binding_.has_peers;
  if (found->matched > 0) {
    out.lease = x.lease();
    held_.emplace(x.lease(), lease_record{found->shards, found->expires});
  }
  finish(id, std::move(out));
}

void lookup_state::go_on(lookup_id id, any_lookup& any, timestamp now) {
  const bool ended = std::visit(
      [&](auto& x) {
        send_requests(id, x, now);
        if (!has_ended(x))
          return false;
        if (const auto peers = peers_.find(id); peers != peers_.end())
          peers->second.answered(0, now); // too late, if at all
        answer(id, x);
        return true;
      },
      any);
  if (ended)
    lookups_.erase(id);
}

void lookup_state::on_match(std::uint64_t call_number, result<match_reply> reply, timestamp now) {
  const auto found = calls_.extract(call_number);
  if (found.empty())
    return;
  const auto [id, part] = found.mapped();
  const auto i = lookups_.find(id);
  if (i == lookups_.end())
    return;
  std::visit([&, at = part](auto& x) { x.on_match(at, std::move(reply), now); }, i->second);
  go_on(id, i->second, now);
}

void lookup_state::on_search(std::uint64_t call_number, result<search_peers_reply> reply, timestamp now) {
  const auto found = calls_.extract(call_number);
  if (found.empty())
    return;
  const auto id = found.mapped().owner;
  const auto i = lookups_.find(id);
  if (i == lookups_.end()) {
    // Too late: the caller does not receive the number with which it could release what was found.
    if (reply)
      end_search(reply->search);
    return;
  }
  peers_[id].answered(0, now);
  if (auto* x = std::get_if<peer_lookup>(&i->second))
    x->on_search(std::move(reply));
  go_on(id, i->second, now);
}

void lookup_state::on_prefix_fetch(std::uint64_t call_number, result<prefix_fetch_reply> reply, timestamp now) {
  const auto found = calls_.extract(call_number);
  if (found.empty())
    return;
  const auto id = found.mapped().owner;
  const auto i = lookups_.find(id);
  if (i == lookups_.end())
    return;
  peers_[id].answered(reply ? reply->keys : 0, now);
  if (auto* x = std::get_if<prefix_fetch>(&i->second))
    x->on_prefix_fetch(reply, new_lease());
  else if (auto* pages = std::get_if<peer_lookup>(&i->second))
    pages->on_fetch(now);
  go_on(id, i->second, now);
}

result<void> lookup_state::release(const ticket& lease, timestamp, const std::vector<key_digest>& kept_there) {
  if (kept_there.size() > binding_.batch_keys_max)
    return fail(errc::limit_exceeded, "more keys than a lookup can find");
  const auto i = held_.find(lease);
  if (i == held_.end())
    return fail(errc::not_found, "no such lease: it was released before, has expired, or belongs to another node");
  const auto parts = split_by_shard(kept_there, binding_.shard_count);
  for (const auto shard : i->second.shards) {
    lookup_release effect{0, shard, {binding_.ns, lease, 0}};
    for (const auto& kept : parts)
      if (kept.shard == shard)
        effect.request.kept_there.items = kept.items;
    outbox_.emplace_back(std::move(effect));
  }
  held_.erase(i);
  return {};
}

result<void> lookup_state::retain(const ticket& lease, const std::vector<key_digest>& keys) {
  if (keys.size() > binding_.batch_keys_max)
    return fail(errc::limit_exceeded, "more keys than a lookup can find");
  const auto i = held_.find(lease);
  if (i == held_.end())
    return fail(errc::not_found, "no such lease: it was released before, has expired, or belongs to another node");
  auto parts = split_by_shard(keys, binding_.shard_count);
  std::vector<std::uint32_t> still;
  for (const auto shard : i->second.shards) {
    lookup_release effect{0, shard, {binding_.ns, lease, 0}};
    for (auto& kept : parts)
      if (kept.shard == shard) {
        effect.request.retained.items = std::move(kept.items);
        still.push_back(shard);
      }
    outbox_.emplace_back(std::move(effect));
  }
  if (still.empty())
    held_.erase(i);
  else
    i->second.shards = std::move(still);
  return {};
}

void lookup_state::on_tick(timestamp now) {
  std::vector<lookup_id> late;
  for (const auto& [id, x] : lookups_)
    if (std::visit([](const auto& any) { return any.deadline(); }, x) <= now)
      late.push_back(id);
  std::sort(late.begin(), late.end());
  for (const auto id : late) {
    auto& x = lookups_.at(id);
    std::visit([&](auto& any) { any.on_tick(now); }, x);
    go_on(id, x, now);
  }
  for (auto i = held_.begin(); i != held_.end();)
    i = i->second.expires <= now ? held_.erase(i) : std::next(i);
}

std::vector<lookup_effect> lookup_state::take_outbox() {
  return std::exchange(outbox_, {});
}

} // namespace troupe::transfer
