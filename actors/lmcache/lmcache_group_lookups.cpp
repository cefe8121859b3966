#include "actors/lmcache/lookup_run.hpp"
#include "actors/support/actor_support.hpp"

#include <algorithm>
#include <variant>

/// Lookups for workers with several groups of layers: messages of `lmcache::grouped_lookup`.

namespace troupe {

using lmcache::grouped_lookup;

void lmcache_server::look_up_groups(const lookup_ptr& run, const std::vector<namespace_id>& all) {
  grouped_lookup::terms how;
  auto keys = run->request->chunks.keys;
  how.begin = std::min(run->request->chunks.begin, static_cast<std::uint32_t>(keys.size()));
  how.lease_for = lmcache_lookups::lease_time;
  how.peers_limit = parts_.fetch_time + lmcache_lookups::fetch_grace;
  how.request = run->request->chunks.request;
  how.has_peers = true;
  for (const auto& id : all) {
    const auto& ns = namespaces_.at(id);
    const auto& node = ns.node->node;
    keys.resize(std::min<std::size_t>(keys.size(), std::size_t{how.begin} + node.limits.batch_keys));
    how.lease_for = std::min<duration>(how.lease_for, node.limits.lease);
    how.has_peers = how.has_peers && node.cluster != nullptr;
    how.groups.push_back({id, ns.needs, static_cast<std::uint32_t>(node.shards.size())});
    run->places.push_back({id, ns.node});
  }
  run->groups.emplace(std::move(how), std::move(keys),
                      [places = run->places](std::uint32_t group) { return places[group].node->new_ticket(); });
  run->groups->start(now());
  go_on_with_groups(run);
}

void lmcache_server::go_on_with_groups(const lookup_ptr& run) {
  // What cannot be sent to peers is answered at once.
  for (auto effects = run->groups->take_outbox(); !effects.empty(); effects = run->groups->take_outbox())
    for (auto& effect : effects)
      std::visit([&](auto& x) { perform(run, x); }, effect);
  end_with_groups(run);
}

void lmcache_server::perform(const lookup_ptr& run, grouped_lookup::match& x) {
  const auto answered = [this, run, lookup = x.lookup, part = x.part](result<match_reply> reply) {
    run->groups->on_match(lookup, part, std::move(reply), now());
    go_on_with_groups(run);
  };
  ask(run->places[x.group].node->node.shards[x.shard], std::move(x.request))
      .then([answered](match_reply& reply) { answered(std::move(reply)); },
            [answered](const caf::error& e) { answered(failed<match_reply>(e)); });
}

void lmcache_server::perform(const lookup_ptr& run, grouped_lookup::release& x) {
  tell(run->places[x.group].node->node.shards[x.shard], std::move(x.request));
}

void lmcache_server::perform(const lookup_ptr& run, grouped_lookup::search& x) {
  ask_peers<search_peers_reply>(
      run, x.group, std::move(x.request),
      [this, run, group = x.group](const result<search_peers_reply>& reply) { run->groups->on_search(group, reply); });
}

void lmcache_server::perform(const lookup_ptr& run, grouped_lookup::fetch& x) {
  if (x.request.keys.empty()) // without an answer, what is held there expires
    request(run->places[x.group].node->node.cluster, request_time, std::move(x.request))
        .then([](const prefix_fetch_reply&) {}, [](const caf::error&) {});
  else
    ask_peers<prefix_fetch_reply>(
        run, x.group, std::move(x.request),
        [this, run, group = x.group](const result<prefix_fetch_reply>&) { run->groups->on_fetch(group, now()); });
}

template <class Reply, class Request, class Answered>
void lmcache_server::ask_peers(const lookup_ptr& run, std::uint32_t group, Request wanted, Answered answered) {
  if (asking_ >= parts_.asking_max)
    return answered(fail(errc::limit_exceeded, "the limit of lookups that query other nodes is reached"));
  ++asking_;
  const auto came = [this, run, answered](const result<Reply>& reply) {
    --asking_;
    answered(reply);
    go_on_with_groups(run);
  };
  request(run->places[group].node->node.cluster, parts_.fetch_time + request_time, std::move(wanted))
      .then([came](const Reply& reply) { came(reply); }, [came](const caf::error& e) { came(failed<Reply>(e)); });
}

void lmcache_server::end_with_groups(const lookup_ptr& run) {
  const auto& outcome = run->groups->outcome();
  if (!outcome || lookups_.erase(run->lookup) == 0)
    return;
  // Its last worker may have disconnected meanwhile: then the result could not be loaded.
  const bool is_there = std::ranges::all_of(run->places, [this](const lookup_run::group_place& x) {
    const auto ns = namespaces_.find(x.ns);
    return ns != namespaces_.end() && ns->second.node == x.node;
  });
  if (!is_there) {
    run->groups->give_back();
    go_on_with_groups(run);
  }
  held_lease held{{}, run->groups->lease_for(), now()};
  for (const auto& x : outcome->leases)
    held.keys.push_back({run->places[x.group].node, x.lease, x.shards});
  // Leased before other nodes were queried, which takes time.
  if (!outcome->leases.empty())
    held.renewed_at = std::min(held.renewed_at, outcome->expires - held.lasts);
  // What the engine has itself was not looked up.
  const auto found = outcome->hit - std::min(outcome->hit, run->request->chunks.begin);
  lookup_done(*run, outcome->hit, found, std::move(held));
}

void lmcache_server::cancel_groups(const lookup_ptr& run) {
  run->groups->cancel();
  go_on_with_groups(run);
}

} // namespace troupe
