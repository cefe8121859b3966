// The registry shards of the simulated node, as actors/registry/registry.cpp runs them.

#include "tests/simulation/node.hpp"

#include <unordered_map>
#include <utility>

namespace troupe::simulation {

namespace {

std::string text_of(rank_number rank, slot_ref where) {
  return "rank " + std::to_string(rank) + ": slot " + std::to_string(where.slot) + " generation " +
         std::to_string(where.generation);
}

} // namespace

// -- time and death ---------------------------------------------------------------------------------------------------

void node::tick_shard(std::uint32_t i) {
  const bool more = registry(i).tick(world_.now());
  flush_shard(i);
  if (more)
    net_.send(shard(i), shard(i), local, "tick", [this, i] { tick_shard(i); });
}

void node::keep_ticking_shard(std::uint32_t i) {
  net_.after(node_process, world_.p.registry_tick, [this, i] {
    tick_shard(i);
    keep_ticking_shard(i);
  });
}

void node::owner_died(std::uint32_t i, owner_id owner) {
  const bool more = registry(i).owner_died(owner, world_.now());
  flush_shard(i);
  if (more)
    net_.send(shard(i), shard(i), local, "tick", [this, i] { tick_shard(i); });
}

// -- requests ---------------------------------------------------------------------------------------------------------

void node::match(std::uint32_t i, const match_request& x, const promise<match_reply>& answer) {
  auto reply = registry(i).match(x, world_.now());
  if (world_.has(defect::forget_lease) && reply)
    (void)registry(i).release({x.space, x.lease, 0}, world_.now());
  flush_shard(i);
  answer.deliver(std::move(reply));
}

void node::locate(std::uint32_t i, const locate_request& x, const promise<locate_reply>& answer) {
  auto reply = registry(i).locate(x, world_.now());
  flush_shard(i);
  if (reply)
    for (const auto& found : reply->locations)
      if (found.code() == errc::ok && !disks_[x.rank]->written(found.where))
        world_.fail(text_of(x.rank, found.where) + " is given to a reader, and was never written");
  answer.deliver(std::move(reply));
}

void node::release(std::uint32_t i, const release_request& x, const promise<void>& answer) {
  auto done = registry(i).release(x, world_.now());
  flush_shard(i);
  answer.deliver(std::move(done));
}

void node::reserve(std::uint32_t i, const reserve_request& x, const promise<reserve_reply>& answer) {
  auto plan = registry(i).begin_reserve(x, world_.now());
  flush_shard(i);
  if (!plan) {
    answer.deliver(tl::unexpected<error>(plan.error()));
    return;
  }
  if (plan->what == reserve_plan::kind::answered) {
    answer.deliver(std::move(plan->reply));
    return;
  }
  const auto id = plan->plan;
  parts_->shards[i].plans[id].push_back(answer);
  if (plan->what == reserve_plan::kind::pending)
    return;
  // Waits for the allocator as long as that takes: slots that arrive after a timeout would belong to nobody.
  const auto timeout = world_.has(defect::abandon_slots) ? world_.p.take_time : duration::zero();
  net_.request<take_reply>(
      shard(i), allocator(x.rank), local, timeout, "take",
      [this, rank = x.rank, count = plan->slots_needed](const promise<take_reply>& p) { take(rank, count, p); },
      [this, i, id, rank = x.rank](const result<take_reply>& reply) {
        if (reply)
          ledger_.grant_arrived(rank, reply->slots.items);
        granted(i, id, reply ? reply->slots.items : std::vector<slot_ref>{});
      });
}

void node::granted(std::uint32_t i, plan_id plan, const std::vector<slot_ref>& slots) {
  const auto reply = registry(i).finish_reserve(plan, slots, world_.now());
  flush_shard(i);
  auto waiting = parts_->shards[i].plans.extract(plan);
  if (waiting.empty()) {
    world_.fail("slots arrive for a reservation that nobody waits for");
    return;
  }
  for (const auto& answer : waiting.mapped())
    answer.deliver(reply);
}

void node::commit(std::uint32_t i, const finish_request& x, const promise<finish_reply>& answer) {
  auto reply = registry(i).commit(x, world_.now());
  flush_shard(i);
  for (std::size_t n = 0; reply && n < x.pages.size(); ++n)
    if (reply->results[n] == 0 && !disks_[x.rank]->written(x.pages[n].where))
      world_.fail(text_of(x.rank, x.pages[n].where) + " is committed, and its write has not ended well");
  answer.deliver(std::move(reply));
}

void node::abort(std::uint32_t i, const finish_request& x, const promise<finish_reply>& answer) {
  auto reply = registry(i).abort(x, world_.now());
  flush_shard(i);
  answer.deliver(std::move(reply));
}

void node::invalidate(std::uint32_t i, const invalidate_request& x, const promise<finish_reply>& answer) {
  auto reply = registry(i).invalidate(x, world_.now());
  flush_shard(i);
  answer.deliver(std::move(reply));
}

evict_reply node::evict(std::uint32_t i, const evict_request& x) {
  std::unordered_map<key_digest, key_info> before;
  registry(i).for_each_key(space_, [&](const key_info& key) {
    if (key.live > 0)
      before.emplace(key.key, key);
  });
  const auto reply = registry(i).evict(x, world_.now());
  registry(i).for_each_key(space_, [&](const key_info& key) {
    if (key.live > 0)
      before.erase(key.key);
  });
  // What is left was evicted. Children that went in the same call count no more.
  std::unordered_map<key_digest, std::int32_t> children_evicted;
  for (const auto& [key, info] : before)
    ++children_evicted[info.parent];
  for (const auto& [key, info] : before) {
    world_.count("evicted key");
    if (info.leases > 0)
      world_.fail("key " + to_string(key) + " is evicted although it is leased");
    if (info.reserved > 0)
      world_.fail("key " + to_string(key) + " is evicted although somebody writes a page of it");
    if (info.children > children_evicted[key])
      world_.fail("key " + to_string(key) + " is evicted before its children");
  }
  if (!reply) {
    world_.fail("a shard refuses to evict: " + to_string(reply.error()));
    return {};
  }
  return *reply;
}

// -- to allocators and other shards -----------------------------------------------------------------------------------

void node::flush_shard(std::uint32_t i) {
  auto out = registry(i).take_outbox();
  for (const auto& batch : out.slots)
    tell_allocator(i, batch);
  for (auto& links : out.links)
    net_.send(shard(i), shard(links.shard), local, "link", [this, to = links.shard, request = links.request] {
      if (!registry(to).link(request, world_.now()))
        world_.fail("a shard refuses child links");
      flush_shard(to);
    });
}

void node::tell_allocator(std::uint32_t i, const slots_to_allocator& batch) {
  say(i, batch.rank, slot_word::publish, batch.publish.slots.items);
  for (const auto* part : {&batch.abort, &batch.unused})
    say(i, batch.rank, slot_word::abort, part->slots.items);
  for (const auto* part : {&batch.release, &batch.suspect})
    say(i, batch.rank, slot_word::release, part->slots.items);
}

void node::say(std::uint32_t i, rank_number rank, slot_word word, const std::vector<slot_ref>& slots) {
  if (slots.empty())
    return;
  ledger_.said(rank, word, slots);
  if (world_.has(defect::lose_abort) && word == slot_word::abort && random_.one_in(4))
    return;
  static constexpr std::string_view words[] = {"publish", "abort", "release"};
  net_.send(shard(i), allocator(rank), local, words[static_cast<std::size_t>(word)],
            [this, rank, word, slots] { hear(rank, word, slots); });
}

} // namespace troupe::simulation
