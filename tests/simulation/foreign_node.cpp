#include "tests/simulation/foreign_node.hpp"

#include <chrono>
#include <set>

namespace troupe::simulation {

namespace {

constexpr std::chrono::sys_seconds today{};

/// For how many others, one after the other, a request waits before keys under way are busy.
constexpr int max_waits = 4;

} // namespace

foreign_node::foreign_node(environment& world, network& net, const foreign_parameters& p)
    : world_(world), net_(net), p_(p), random_(world.random.fork()), space_(p.space.id()),
      store_(world, net, p.sync_time), disks_(p.ranks, foreign_disk(p.slots)) {}

void foreign_node::tick_shard(std::uint32_t i) {
  const bool more = registry(i).tick(world_.now());
  flush_shard(i);
  if (more)
    net_.send(shard(i), shard(i), local, "tick", [this, i] { tick_shard(i); });
}

void foreign_node::keep_ticking_shard(std::uint32_t i) {
  net_.after(node_process, p_.tick, [this, i] {
    tick_shard(i);
    keep_ticking_shard(i);
  });
}

void foreign_node::keep_ticking_allocator(rank_number rank) {
  net_.after(node_process, p_.tick, [this, rank] {
    parts_->ranks[rank].allocator->tick(world_.now());
    flush_allocator(rank);
    keep_ticking_allocator(rank);
  });
}

// -- requests ---------------------------------------------------------------------------------------------------------

template <class Reply>
void foreign_node::answer_durably(std::uint32_t i, result<Reply> reply, const promise<Reply>& answer,
                                  std::function<void()> before) {
  flush_shard(i);
  const auto end = [answer, before = std::move(before), reply = std::move(reply)](const error*) {
    if (before)
      before();
    answer.deliver(reply);
  };
  if (world_.has(defect::early_answer) || !keeps_index())
    end(nullptr);
  else
    parts_->shards[i].log.when_durable(end);
}

void foreign_node::allocate(std::uint32_t i, const allocate_request& x, const promise<reserve_reply>& answer) {
  auto plan = registry(i).begin_allocate(x, world_.now(), true);
  flush_shard(i);
  go_on(i, std::move(plan), {x, answer, max_waits});
}

void foreign_node::go_on(std::uint32_t i, result<reserve_plan> plan, waiting_allocate x) {
  if (!plan) {
    x.answer.deliver(tl::unexpected<error>(plan.error()));
  } else if (plan->what == reserve_plan::kind::answered) {
    x.answer.deliver(std::move(plan->reply));
  } else if (plan->what == reserve_plan::kind::wait) {
    --x.waits;
    parts_->shards[i].waiting[plan->plan].push_back(std::move(x));
  } else {
    const auto id = plan->plan;
    const auto rank = x.wanted.rank;
    parts_->shards[i].plans.emplace(id, x.answer);
    net_.request<take_reply>(
        shard(i), allocator(rank), local, duration::zero(), "take",
        [this, rank, count = plan->slots_needed](const promise<take_reply>& answer) {
          auto& r = parts_->ranks[rank];
          r.takes.emplace(++r.last_take, answer);
          r.allocator->take(r.last_take, count, world_.now() + p_.take_time, world_.now());
          flush_allocator(rank);
        },
        [this, i, id](const result<take_reply>& reply) { granted(i, id, reply->slots.items); });
  }
}

void foreign_node::granted(std::uint32_t i, plan_id plan, const std::vector<slot_ref>& slots) {
  auto& part = parts_->shards[i];
  const auto reply = registry(i).finish_reserve(plan, slots, world_.now());
  flush_shard(i);
  part.plans.extract(plan).mapped().deliver(reply);
  auto waited = part.waiting.extract(plan);
  if (waited.empty())
    return;
  for (auto& x : waited.mapped()) {
    auto next = registry(i).begin_allocate(x.wanted, world_.now(), x.waits > 0);
    flush_shard(i);
    go_on(i, std::move(next), std::move(x));
  }
}

void foreign_node::confirm(std::uint32_t i, const confirm_request& x, const promise<result_codes>& answer) {
  auto reply = registry(i).confirm(x, world_.now());
  const auto note = [this, i, x, reply] {
    if (reply)
      note_confirmed(i, x, *reply);
  };
  answer_durably<result_codes>(i, std::move(reply), answer, note);
}

void foreign_node::note_confirmed(std::uint32_t i, const confirm_request& x, const result_codes& reply) {
  for (std::size_t n = 0; n < x.pages.size(); ++n) {
    const auto& page = x.pages[n];
    world_.count("confirm", static_cast<errc>(reply.results[n]));
    // It may have been unpublished while the answer waited for the store.
    if (reply.results[n] == 0 && shard_of(page.key, p_.shards) == i && is_live(page.key, x.rank, page.where.slot))
      answered_[{page.key, x.rank}] = page.where.slot;
  }
}

void foreign_node::reclaim(std::uint32_t i, const reclaim_request& x, const promise<result_codes>& answer) {
  answer_durably<result_codes>(i, registry(i).reclaim(x, world_.now()), answer);
}

void foreign_node::erase(std::uint32_t i, const erase_request& x, const promise<result_codes>& answer) {
  answer_durably<result_codes>(i, registry(i).erase(x, world_.now()), answer);
}

void foreign_node::exists(std::uint32_t i, const exists_request& x, const promise<result_codes>& answer) {
  answer.deliver(registry(i).exists(x));
}

void foreign_node::protect(std::uint32_t i, const protect_request& x, const promise<locate_reply>& answer) {
  auto wanted = x;
  if (world_.has(defect::forget_protection))
    wanted.protect_for = std::chrono::milliseconds(1);
  auto reply = registry(i).protect(wanted, world_.now());
  flush_shard(i);
  answer.deliver(std::move(reply));
}

void foreign_node::evict(std::uint32_t i, const evict_request& x, const promise<evict_reply>& answer) {
  auto reply = registry(i).evict(x, world_.now());
  if (reply)
    world_.count("evicted slot", reply->slots);
  answer_durably<evict_reply>(i, std::move(reply), answer);
}

// -- what follows -----------------------------------------------------------------------------------------------------

void foreign_node::flush_shard(std::uint32_t i) {
  auto out = registry(i).take_outbox();
  for (auto& children : out.children)
    net_.send(shard(i), shard(children.shard), local, "link", [this, to = children.shard, request = children.request] {
      if (!registry(to).count_children(request, world_.now()))
        world_.fail("a shard refuses changes of children");
      flush_shard(to);
    });
  for (const auto& change : out.changes)
    if (const auto* gone = std::get_if<page_unpublished>(&change))
      answered_.erase({gone->key, gone->rank});
  auto& log = parts_->shards[i].log;
  if (keeps_index()) {
    log.append(out.changes, out.sequence, today);
    write_changes(i);
  }
  if (out.slots.empty())
    return;
  const auto tell = [this, i, slots = std::move(out.slots)](const error*) {
    for (const auto& batch : slots)
      tell_allocator(i, batch);
  };
  if (world_.has(defect::early_reuse) || !keeps_index())
    tell(nullptr);
  else
    log.when_durable(tell);
}

void foreign_node::write_changes(std::uint32_t i) {
  auto batch = parts_->shards[i].log.begin_write();
  if (!batch)
    return;
  store_.commit(std::move(*batch), [this, i] {
    net_.send(shard(i), shard(i), local, "written", [this, i] {
      auto& log = parts_->shards[i].log;
      log.written();
      log.serve();
      write_changes(i);
    });
  });
}

void foreign_node::tell_allocator(std::uint32_t i, const slots_to_allocator& batch) {
  if (!batch.publish.slots.empty())
    say(i, batch.rank, "publish", [slots = batch.publish.slots.items](auto& x) { return x.publish(slots); });
  for (const auto* part : {&batch.abort, &batch.unused})
    if (!part->slots.empty())
      say(i, batch.rank, "abort", [this, slots = part->slots.items, rest = part->rest](auto& x) {
        return x.abort(slots, rest && !world_.has(defect::forget_rest), world_.now());
      });
  for (const auto* part : {&batch.release, &batch.suspect})
    if (!part->slots.empty())
      say(i, batch.rank, "release", [this, slots = part->slots.items, rest = part->rest](auto& x) {
        world_.count(rest ? "slot: rests" : "slot: free at once", slots.size());
        return x.release(slots, rest && !world_.has(defect::forget_rest), world_.now());
      });
}

void foreign_node::say(std::uint32_t i, rank_number rank, std::string_view what,
                       std::function<std::vector<errc>(allocator_state&)> word) {
  net_.send(shard(i), allocator(rank), local, what, [this, rank, what, word = std::move(word)] {
    for (const auto code : word(*parts_->ranks[rank].allocator))
      if (code != errc::ok)
        world_.fail("rank " + std::to_string(rank) + ": the allocator refuses to " + std::string(what) + " a slot");
    flush_allocator(rank);
  });
}

void foreign_node::flush_allocator(rank_number rank) {
  auto& r = parts_->ranks[rank];
  auto out = r.allocator->take_outbox();
  if (!out.fence.empty())
    world_.fail("an allocator without an io worker asks it for a fence");
  for (auto& answer : out.answers) {
    world_.count("take", answer.code);
    r.takes.extract(answer.request).mapped().deliver(std::move(answer.reply));
  }
  if (out.evict > 0)
    ask_to_evict(rank, out.evict);
}

void foreign_node::ask_to_evict(rank_number rank, std::uint32_t wanted) {
  struct gathering {
    std::size_t waiting = 0;
    std::uint64_t freed = 0;
    bool more = false;
  };
  auto shared = std::make_shared<gathering>();
  shared->waiting = p_.shards;
  const evict_request share{space_, rank, (wanted + p_.shards - 1) / p_.shards};
  for (std::uint32_t i = 0; i < p_.shards; ++i)
    net_.request<evict_reply>(
        allocator(rank), shard(i), local, duration::zero(), "evict",
        [this, i, share](const promise<evict_reply>& answer) { evict(i, share, answer); },
        [this, rank, shared](const result<evict_reply>& reply) {
          shared->freed += reply->slots;
          shared->more = shared->more || reply->more;
          if (--shared->waiting > 0)
            return;
          parts_->ranks[rank].allocator->eviction_done(shared->freed, shared->more);
          flush_allocator(rank);
        });
}

// -- checks -----------------------------------------------------------------------------------------------------------

bool foreign_node::is_live(const key_digest& key, rank_number rank, slot_number slot) const {
  if (!running())
    return false;
  const auto found = parts_->shards[shard_of(key, p_.shards)].state->look_up({space_, key}, world_.now());
  if (found)
    for (const auto& page : found->pages)
      if (page.rank == rank && page.state == key_page::use::live && page.where.slot == slot)
        return true;
  return false;
}

std::vector<key_digest> foreign_node::keys() const {
  std::vector<key_digest> out;
  for (const auto& shard : parts_->shards)
    shard.state->for_each_key(space_, [&](const key_info& info) {
      if (info.live > 0)
        out.push_back(info.key);
    });
  return out;
}

std::string foreign_node::check_counts() const {
  if (!running())
    return {};
  for (const auto& r : parts_->ranks) {
    const auto s = r.allocator->stats();
    if (s.free + s.reserved + s.live + s.quarantined != p_.slots)
      return "slots by state do not add up to all slots";
    if (s.refused > 0)
      return "an allocator was asked for what makes no sense";
  }
  return {};
}

std::string foreign_node::check_all() const {
  if (!running())
    return {};
  std::set<std::pair<rank_number, slot_number>> held;
  std::string wrong;
  for (const auto& shard : parts_->shards) {
    if (wrong = shard.state->check_invariants(); !wrong.empty())
      return "registry: " + wrong;
    shard.state->for_each_slot(space_, [&](rank_number rank, slot_ref where, registry_state::page_use) {
      const auto name = "rank " + std::to_string(rank) + ", slot " + std::to_string(where.slot);
      if (!held.emplace(rank, where.slot).second)
        wrong = name + " is held by two keys";
      const auto& slots = *parts_->ranks[rank].allocator;
      const auto state = slots.state_of(where.slot);
      const bool out = state == allocator_state::slot_state::reserved || state == allocator_state::slot_state::live;
      if (!out || slots.generation_of(where.slot) != where.generation)
        wrong = name + " is held by a key, and its allocator has it back";
    });
    if (!wrong.empty())
      return wrong;
  }
  for (const auto& r : parts_->ranks)
    if (wrong = r.allocator->check_invariants(); !wrong.empty())
      return "allocator: " + wrong;
  return {};
}

std::string foreign_node::check_at_rest() const {
  if (!running())
    return "the node is not running";
  std::vector<std::uint64_t> pages(p_.ranks);
  for (const auto& shard : parts_->shards) {
    const auto s = shard.state->stats();
    if (s.reservations + s.withheld_slots > 0)
      return "a shard still holds slots that have no page";
    if (!shard.plans.empty() || !shard.waiting.empty() || !shard.log.durable() || shard.log.waiting() > 0)
      return "a shard still waits";
    shard.state->for_each_slot(space_, [&](rank_number rank, slot_ref, registry_state::page_use) { ++pages[rank]; });
  }
  for (rank_number rank = 0; rank < p_.ranks; ++rank) {
    const auto s = parts_->ranks[rank].allocator->stats();
    if (s.reserved + s.quarantined > 0 || !parts_->ranks[rank].takes.empty())
      return "rank " + std::to_string(rank) + ": slots are neither free nor live";
    if (s.live != pages[rank])
      return "rank " + std::to_string(rank) + ": " + std::to_string(s.live) + " slots are live, and shards know " +
             std::to_string(pages[rank]);
  }
  return {};
}

} // namespace troupe::simulation
