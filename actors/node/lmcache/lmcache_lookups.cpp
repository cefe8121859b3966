#include "actors/node/lmcache/lmcache_server.hpp"
#include "actors/support/actor_support.hpp"
#include "actors/support/shard_batches.hpp"

#include <algorithm>

namespace troupe {

namespace {

/// How long pages stay locked that nobody renews.
constexpr duration lease_time = std::chrono::minutes(5);

} // namespace

/// A lookup that shards are asked for, in each namespace that its workers may belong to.
struct lmcache_server::lookup_run {
  struct part {
    std::size_t space = 0;
    std::uint32_t shard = 0;
    std::vector<std::uint32_t> positions;
    std::uint32_t matched = 0;
  };

  request_ptr request;
  std::uint64_t lookup = 0;
  std::uint32_t keys = 0;
  std::vector<held_keys> held;
  duration lasts = lease_time;
  std::vector<part> parts;
  std::size_t waiting = 0;
};

// The scheduler's half of an engine says model and world size, and not how its workers' pages look. Where workers of
// one model look different, only what all of them would find counts.
void lmcache_server::look_up(const request_ptr& x) {
  const auto lookup = sessions_.begin(x->client, x->chunks.request, now());
  end_leases();
  // Acknowledges only.
  answer(x, std::nullopt);
  if (!lookup)
    return;
  const auto run = std::make_shared<lookup_run>();
  run->request = x;
  run->lookup = *lookup;
  for (const auto& [id, space] : spaces_) {
    if (space.spec.model != x->chunks.model || space.spec.world_size != x->chunks.world_size || !space.node)
      continue;
    auto& node = *space.node;
    auto keys = x->chunks.keys;
    keys.resize(std::min<std::size_t>(keys.size(), node.node.limits.batch_keys));
    run->keys = static_cast<std::uint32_t>(keys.size());
    held_keys held{space.node, node.new_ticket(), {}};
    const auto lease_for = std::min<duration>(node.node.limits.lease, lease_time);
    run->lasts = std::min(run->lasts, lease_for);
    for (auto& part : transfer::split_by_shard(keys, static_cast<std::uint32_t>(node.node.shards.size()))) {
      const auto index = run->parts.size();
      held.shards.push_back(part.shard);
      run->parts.push_back({run->held.size(), part.shard, std::move(part.positions), 0});
      ++run->waiting;
      request(node.node.shards[part.shard], caf::infinite,
              match_request{id, held.name, lease_for, std::move(part.items)})
          .then(
              [this, run, index](const match_reply& reply) {
                auto& p = run->parts[index];
                p.matched = std::min(reply.matched, static_cast<std::uint32_t>(p.positions.size()));
                if (--run->waiting == 0)
                  end_lookup(*run);
              },
              [this, run](const caf::error&) {
                if (--run->waiting == 0)
                  end_lookup(*run);
              });
    }
    run->held.push_back(std::move(held));
  }
  if (run->waiting == 0)
    end_lookup(*run);
}

void lmcache_server::end_lookup(lookup_run& run) {
  const auto chunks = run.held.empty() ? 0 : transfer::matched_prefix(run.parts, run.keys);
  const auto& asked = run.request->chunks;
  const auto number = ++last_lease_;
  const lmcache::session_table::finding found{chunks, asked.world_size, asked.readers, number};
  parts_.counters->asked_chunks.fetch_add(asked.end, std::memory_order_relaxed);
  const bool wanted = sessions_.found(run.request->client, asked.request, run.lookup, found, now());
  if (!wanted || chunks == 0) {
    for (const auto& x : run.held)
      release(x);
  } else {
    parts_.counters->found_chunks.fetch_add(chunks, std::memory_order_relaxed);
    for (const auto& x : run.parts) {
      const auto& held = run.held[x.space];
      if (const auto keep = transfer::positions_within(x.positions, chunks); x.matched > keep)
        request(held.node->node.shards[x.shard], caf::infinite,
                release_request{held.node->node.space_id, held.name, keep})
            .then([] {}, [](const caf::error&) {});
    }
    leases_.emplace(number, held_lease{std::move(run.held), run.lasts, now()});
    shortest_lease_ = std::min(shortest_lease_, run.lasts);
    plan_tick(run.lasts / 4);
  }
  settle_waiting();
}

void lmcache_server::answer_status(const request_ptr& x, duration patience) {
  if (sessions_.pending(x->client, x->request) && patience > duration::zero()) {
    waiting_.push_back({x, later(now(), patience)});
    return plan_tick(status_patience);
  }
  const auto status = sessions_.take_status(x->client, x->request);
  answer(x, status.pending ? std::nullopt : std::optional(lmcache::wire::answer(std::uint64_t{status.chunks})));
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

void lmcache_server::end_leases() {
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
        request(x.node->node.shards[shard], caf::infinite, renew_request{x.node->node.space_id, x.name, lease.lasts})
            .then([] {}, [](const caf::error&) {});
  }
}

void lmcache_server::release(const held_keys& x) {
  for (const auto shard : x.shards)
    request(x.node->node.shards[shard], caf::infinite, release_request{x.node->node.space_id, x.name, 0})
        .then([] {}, [](const caf::error&) {});
}

} // namespace troupe
