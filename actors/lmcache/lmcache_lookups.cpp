#include "actors/lmcache/lookup_run.hpp"
#include "actors/support/actor_support.hpp"

#include <algorithm>
#include <variant>

namespace troupe {

namespace {

using lmcache_lookups::fetch_grace;
using lmcache_lookups::lease_time;

} // namespace

// The scheduler's half of an engine sends model and world size, but not the page shape of its workers. If workers of
// one model have different shapes, only keys that all of them would find count.
void lmcache_server::look_up(const request_ptr& x) {
  const auto lookup = sessions_.begin(x->client, x->chunks.request, now(), x->chunks.engine_chunks);
  end_unneeded();
  // Only acknowledges.
  answer(x, std::nullopt);
  if (!lookup)
    return;
  parts_.counters->asked_chunks.fetch_add(x->chunks.end, std::memory_order_relaxed);
  const auto run = std::make_shared<lookup_run>();
  run->request = x;
  run->lookup = *lookup;
  lookups_.emplace(run->lookup, run);
  const auto all = namespaces_of(x->chunks);
  if (std::ranges::any_of(all, [this](const namespace_id& id) { return namespaces_.at(id).groups > 1; }))
    return look_up_groups(run, all);
  for (const auto& id : all) {
    const auto& ns = namespaces_.at(id);
    const auto& node = ns.node->node;
    auto keys = x->chunks.keys;
    keys.resize(std::min<std::size_t>(keys.size(), node.limits.batch_keys));
    transfer::prefix_fetch::terms how;
    how.ns = id;
    how.shard_count = static_cast<std::uint32_t>(node.shards.size());
    how.lease_for = std::min<duration>(node.limits.lease, lease_time);
    how.has_peers = node.cluster != nullptr;
    how.peers_limit = parts_.fetch_time + fetch_grace;
    how.request = x->chunks.request;
    run->finders.push_back({id, ns.node, how.lease_for, transfer::prefix_fetch(how, std::move(keys))});
  }
  for (std::size_t i = 0; i < run->finders.size(); ++i) {
    auto& finder = run->finders[i];
    finder.keys.start(finder.node->new_ticket(), now());
    go_on(run, i);
  }
  end_lookup(run);
}

// A worker has pages in the namespaces of all its groups, so a hit in some of them is none.
std::vector<namespace_id> lmcache_server::namespaces_of(const lmcache::chunk_range& chunks) const {
  std::map<std::string, std::size_t> ready;
  for (const auto& [id, ns] : namespaces_)
    if (ns.node && ns.spec.model == chunks.model && ns.spec.world_size == chunks.world_size)
      ++ready[ns.spec.group_of];
  std::vector<namespace_id> out;
  for (const auto& [id, ns] : namespaces_)
    if (ns.node && ns.spec.model == chunks.model && ns.spec.world_size == chunks.world_size &&
        (ns.groups == 1 || ready.at(ns.spec.group_of) == ns.groups))
      out.push_back(id);
  return out;
}

void lmcache_server::go_on(const lookup_ptr& run, std::size_t finder) {
  auto& x = run->finders[finder];
  for (auto& effect : x.keys.take_outbox()) {
    if (auto* match = std::get_if<transfer::prefix_fetch::match>(&effect)) {
      const auto answered = [this, run, finder, part = match->part](result<match_reply> reply) {
        run->finders[finder].keys.on_match(part, std::move(reply), now());
        go_on(run, finder);
        end_lookup(run);
      };
      ask(x.node->node.shards[match->shard], std::move(match->request))
          .then([answered](match_reply& reply) { answered(std::move(reply)); },
                [answered](const caf::error& e) { answered(failed<match_reply>(e)); });
    } else if (auto* release = std::get_if<transfer::prefix_fetch::release>(&effect)) {
      tell(x.node->node.shards[release->shard], std::move(release->request));
    } else {
      wanted_prefix(run, finder, std::move(std::get<transfer::prefix_fetch::wanted_prefix>(effect).request));
    }
  }
}

void lmcache_server::wanted_prefix(const lookup_ptr& run, std::size_t finder, prefix_fetch_request wanted) {
  const auto answered = [this, run, finder](const result<prefix_fetch_reply>& reply) {
    auto& x = run->finders[finder];
    x.keys.on_prefix_fetch(reply, x.node->new_ticket());
    go_on(run, finder);
  };
  if (asking_ >= parts_.asking_max)
    return answered(fail(errc::limit_exceeded, "the limit of lookups that query other nodes is reached"));
  ++asking_;
  const auto came = [this, run, answered](const result<prefix_fetch_reply>& reply) {
    --asking_;
    answered(reply);
    end_lookup(run);
  };
  request(run->finders[finder].node->node.cluster, parts_.fetch_time + request_time, std::move(wanted))
      .then([came](const prefix_fetch_reply& reply) { came(reply); },
            [came](const caf::error& e) { came(failed<prefix_fetch_reply>(e)); });
}

void lmcache_server::end_lookup(const lookup_ptr& run) {
  if (!std::ranges::all_of(run->finders, [](const auto& x) { return x.keys.outcome().has_value(); }) ||
      lookups_.erase(run->lookup) == 0)
    return;
  std::optional<std::uint32_t> least;
  for (const auto& x : run->finders) {
    // Its last worker may have disconnected meanwhile: then the result could not be loaded.
    const auto ns = namespaces_.find(x.ns);
    if (ns == namespaces_.end() || ns->second.node != x.node)
      continue;
    const auto& found = *x.keys.outcome();
    least = std::min(least.value_or(~std::uint32_t{0}), found ? found->matched : 0);
  }
  const auto chunks = least.value_or(0);
  const auto time = now();
  held_lease held{{}, lease_time, time};
  for (std::size_t i = 0; i < run->finders.size(); ++i) {
    auto& x = run->finders[i];
    x.keys.keep(chunks);
    go_on(run, i);
    if (const auto& found = *x.keys.outcome(); found && found->matched > 0) {
      held.keys.push_back({x.node, found->lease, found->shards});
      held.lasts = std::min(held.lasts, x.lasts);
      // Leased before other nodes were queried, which takes time.
      held.renewed_at = std::min(held.renewed_at, found->expires - x.lasts);
    }
  }
  lookup_done(*run, chunks, chunks, std::move(held));
}

void lmcache_server::lookup_done(const lookup_run& run, std::uint32_t chunks, std::uint32_t found, held_lease held) {
  const auto& asked = run.request->chunks;
  const auto number = ++last_lease_;
  const auto time = now();
  sessions_.found(run.request->client, asked.request, run.lookup, {chunks, asked.world_size, asked.readers, number},
                  time);
  parts_.counters->found_chunks.fetch_add(found, std::memory_order_relaxed);
  if (chunks > 0) {
    shortest_lease_ = std::min(shortest_lease_, held.lasts);
    plan_tick(std::clamp<duration>(held.renewed_at + held.lasts / 3 - time, duration::zero(), held.lasts / 4));
    leases_.emplace(number, std::move(held));
  }
  settle_waiting();
}

void lmcache_server::cancel(const lookup_ptr& run) {
  if (run->groups)
    return cancel_groups(run);
  for (auto& x : run->finders) {
    x.keys.cancel();
    for (auto& effect : x.keys.take_outbox())
      if (auto* release = std::get_if<transfer::prefix_fetch::release>(&effect))
        tell(x.node->node.shards[release->shard], std::move(release->request));
  }
}

void lmcache_server::limit_lookups(timestamp time) {
  std::vector<lookup_ptr> late;
  for (const auto& [number, run] : lookups_)
    if (std::ranges::any_of(run->finders, [&](const auto& x) { return x.keys.deadline() <= time; }) ||
        (run->groups && run->groups->deadline() <= time))
      late.push_back(run);
  for (const auto& run : late) {
    if (run->groups) {
      run->groups->on_tick(time);
      go_on_with_groups(run);
      continue;
    }
    for (std::size_t i = 0; i < run->finders.size(); ++i) {
      run->finders[i].keys.on_tick(time);
      go_on(run, i);
    }
    end_lookup(run);
  }
}

void lmcache_server::answer_status(const request_ptr& x, duration patience) {
  if (sessions_.pending(x->client, x->request) && patience > duration::zero()) {
    waiting_.push_back({x, later(now(), patience)});
    return plan_tick(status_patience);
  }
  const auto status = sessions_.take_status(x->client, x->request);
  answer(x, status.pending ? std::nullopt : std::optional(lmcache::protocol::answer(std::uint64_t{status.chunks})));
}

void lmcache_server::settle_waiting() {
  if (waiting_.empty())
    return;
  const auto time = now();
  for (auto& x : std::exchange(waiting_, {})) {
    if (sessions_.pending(x.request->client, x.request->request) && time < x.until)
      waiting_.push_back(std::move(x));
    else
      answer_status(x.request, duration::zero());
  }
}

void lmcache_server::end_unneeded() {
  for (const auto number : sessions_.take_cancelled())
    if (const auto node = lookups_.extract(number); !node.empty())
      cancel(node.mapped());
  for (const auto number : sessions_.take_ended())
    if (const auto node = leases_.extract(number); !node.empty())
      for (const auto& x : node.mapped().keys)
        release(x);
}

void lmcache_server::renew_leases(timestamp time) {
  shortest_lease_ = duration::max();
  for (auto& [number, lease] : leases_) {
    shortest_lease_ = std::min(shortest_lease_, lease.lasts);
    if (time - lease.renewed_at < lease.lasts / 3)
      continue;
    lease.renewed_at = time;
    for (const auto& x : lease.keys)
      for (const auto shard : x.shards)
        tell(x.node->node.shards[shard], renew_request{x.node->node.ns_id, x.name, lease.lasts});
  }
}

void lmcache_server::release(const held_keys& x) {
  for (const auto shard : x.shards)
    tell(x.node->node.shards[shard], release_request{x.node->node.ns_id, x.name, 0});
}

} // namespace troupe
