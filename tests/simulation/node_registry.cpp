// The registry shards of the simulated node, as actors/node/registry/registry.cpp runs them.

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
  if (!more)
    parts_->book.nothing_due(i, world_.now());
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
  parts_->book.owner_died(i, owner, world_.now());
  const bool more =
      world_.has(defect::outlive_owner) ? registry(i).tick(world_.now()) : registry(i).owner_died(owner, world_.now());
  if (!more)
    parts_->book.nothing_due(i, world_.now());
  flush_shard(i);
  if (more)
    net_.send(shard(i), shard(i), local, "tick", [this, i] { tick_shard(i); });
}

// -- requests ---------------------------------------------------------------------------------------------------------

void node::match(std::uint32_t i, const match_request& x, const promise<match_reply>& answer) {
  auto reply = registry(i).match(x, world_.now());
  if (reply)
    parts_->book.taken(i, x.lease, std::span(x.keys.items).first(reply->matched), x.lease_for, world_.now());
  if (world_.has(defect::forget_lease) && reply)
    (void)registry(i).release({x.space, x.lease, 0}, world_.now());
  flush_shard(i);
  answer.deliver(std::move(reply));
}

void node::locate(std::uint32_t i, const locate_request& x, const promise<locate_reply>& answer) {
  auto reply = registry(i).locate(x, world_.now());
  if (reply)
    lease_located(i, x, *reply);
  flush_shard(i);
  answer.deliver(std::move(reply));
}

void node::lease_located(std::uint32_t i, const locate_request& x, const locate_reply& reply) {
  auto& book = parts_->book;
  std::vector<key_digest> found;
  for (std::size_t n = 0; n < reply.locations.size(); ++n)
    if (reply.locations[n].code() == errc::ok)
      found.push_back(x.keys[n]);
  book.taken(i, x.lease, found, x.lease_for, world_.now());
  for (std::size_t n = 0; n < reply.locations.size(); ++n) {
    const auto& at = reply.locations[n];
    if (at.code() != errc::ok)
      continue;
    book.told(i, x.lease, x.rank, {x.keys[n], at.where});
    if (!disks_[x.rank]->written(at.where))
      world_.fail("commits", text_of(x.rank, at.where) + " is given to a reader, and was never written");
  }
}

void node::release(std::uint32_t i, const release_request& x, const promise<void>& answer) {
  auto wanted = x;
  if (world_.has(defect::keep_one_more) && x.keep > 0)
    ++wanted.keep;
  auto done = registry(i).release(wanted, world_.now());
  if (done)
    parts_->book.released(i, x.lease, x.keep, world_.now());
  flush_shard(i);
  answer.deliver(std::move(done));
}

void node::reserve(std::uint32_t i, const reserve_request& x, const promise<reserve_reply>& answer) {
  auto wanted = x;
  if (world_.has(defect::long_reservations))
    wanted.expires_in *= 10;
  auto plan = registry(i).begin_reserve(wanted, world_.now());
  if (plan)
    parts_->book.reserved(i, x.ticket, world_.now() + x.expires_in);
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
      [this, i, id, rank = x.rank, token = x.ticket, expires_in = x.expires_in](const result<take_reply>& reply) {
        if (reply)
          ledger_.grant_arrived(rank, reply->slots.items);
        // The time to write begins with the answer.
        parts_->book.reserved(i, token, world_.now() + expires_in);
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
    if (reply->results[n] == 0)
      check_commit(i, x.rank, x.ticket, x.pages[n].where);
  answer.deliver(std::move(reply));
}

void node::check_commit(std::uint32_t i, rank_number rank, const ticket& token, slot_ref where) {
  if (!disks_[rank]->written(where))
    world_.fail("commits", text_of(rank, where) + " is committed, and its write has not ended well");
  // Whoever asks again is answered as before, be it late or not.
  if (std::exchange(parts_->ranks[rank].committed[where.slot], where.generation) == where.generation)
    return;
  if (auto wrong = parts_->book.committed(i, token, world_.now()); !wrong.empty())
    world_.fail("reservations", text_of(rank, where) + " is committed, and " + wrong);
}

owner_id node::erase_something() {
  if (!running())
    return 0;
  std::optional<lease_book::holding> found;
  const auto rank = static_cast<rank_number>(random_.below(world_.p.ranks));
  if (const auto where = disks_[rank]->busiest_slot(); where && !random_.one_in(4))
    found = parts_->book.key_at(rank, *where);
  if (!found)
    found = parts_->book.any_key(static_cast<std::uint32_t>(random_.below(world_.p.shards)), random_.next());
  if (!found)
    return 0;
  const auto i = shard_of(found->key, world_.p.shards);
  world_.trace("key is erased", {i, found->key.lo});
  world_.count("fault: erased key");
  net_.send(supervisor(), shard(i), local, "erase", [this, i, key = found->key] {
    if (!registry(i).erase({space_, all_ranks, std::vector{key}}, world_.now()))
      world_.fail("a shard refuses to erase a key");
    flush_shard(i);
  });
  return found->owner;
}

void node::abort(std::uint32_t i, const finish_request& x, const promise<finish_reply>& answer) {
  auto reply = registry(i).abort(x, world_.now());
  flush_shard(i);
  answer.deliver(std::move(reply));
}

void node::invalidate(std::uint32_t i, const invalidate_request& x, const promise<finish_reply>& answer) {
  auto reply = registry(i).invalidate(x, world_.now());
  flush_shard(i);
  if (world_.has(defect::reuse_leased) && reply)
    for (std::size_t n = 0; n < x.pages.size(); ++n)
      if (reply->results[n] == 0 && !parts_->book.reader_of(i, x.rank, x.pages[n].where, world_.now()).empty())
        say(i, x.rank, slot_word::release, {x.pages[n].where});
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
      world_.fail("eviction", "key " + to_string(key) + " is evicted although it is leased");
    if (info.reserved > 0)
      world_.fail("eviction", "key " + to_string(key) + " is evicted although somebody writes a page of it");
    if (info.children > children_evicted[key])
      world_.fail("eviction", "key " + to_string(key) + " is evicted before its children");
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
  for (auto& children : out.children)
    net_.send(shard(i), shard(children.shard), local, "link", [this, to = children.shard, request = children.request] {
      if (!registry(to).count_children(request, world_.now()))
        world_.fail("a shard refuses changes of children");
      flush_shard(to);
    });
  for (const auto& batch : out.slots)
    tell_allocator(i, batch);
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
  if (word == slot_word::release)
    for (const auto& where : slots)
      if (auto reader = parts_->book.reader_of(i, rank, where, world_.now()); !reader.empty())
        world_.fail("leases", text_of(rank, where) + " is given back, and " + reader);
  ledger_.said(rank, word, slots);
  if (world_.has(defect::lose_abort) && word == slot_word::abort && random_.one_in(4))
    return;
  static constexpr std::string_view words[] = {"publish", "abort", "release"};
  net_.send(shard(i), allocator(rank), local, words[static_cast<std::size_t>(word)],
            [this, rank, word, slots] { hear(rank, word, slots); });
}

} // namespace troupe::simulation
