// The second half of key_space: what goes before others, what may go, and what goes.

#include "actors/node/registry/key_space.hpp"

#include <algorithm>
#include <array>

namespace troupe {

// -- spare keys -----------------------------------------------------------------------------------------------------

void key_space::make_spare(entry_index i) noexcept {
  auto& e = table_.entry(i);
  if (e.spare)
    return;
  e.spare = true;
  ++spare_keys_;
  // Children keep it no longer, so it may go now.
  if (e.awaits_children)
    await_no_more(e);
  chance_ = true;
}

void key_space::spare_no_more(key_entry& e) noexcept {
  spare_keys_ -= e.spare ? 1 : 0;
  e.spare = false;
}

void key_space::spare(std::span<const entry_index> entries) {
  // What somebody holds is told to the policy when he gives it back: until then it could only be passed over.
  for (const auto i : entries) {
    make_spare(i);
    if (table_.entry(i).leases == 0)
      spared_.push_back(i);
  }
  policy_->spared(spared_);
  spared_.clear();
}

void key_space::inserted(std::span<const entry_index> entries) {
  policy_->inserted(entries);
}

void key_space::fetched(std::span<const entry_index> entries, bool as_guests, coarse_time now, coarse_time until) {
  policy_->fetched(entries);
  for (const auto i : entries) {
    auto& e = table_.entry(i);
    e.guest = as_guests;
    // Whoever has it already, or was promised it, need not come for it.
    if (e.leases == 0 && !e.is_protected(now))
      e.await(until);
  }
}

// -- eviction -------------------------------------------------------------------------------------------------------

key_space::hold key_space::held_by(entry_index i, coarse_time now) const noexcept {
  const auto& e = table_.entry(i);
  if (e.leases > 0 || e.reserved > 0 || e.is_protected(now))
    return hold::other;
  if (e.is_awaited(now) && !takes_awaited_)
    return hold::awaited;
  // Parents are what clients say they are, and nothing keeps keys from naming each other in a ring, across shards and
  // requests. So children are a reason to wait, and not for ever.
  const bool in_vain = e.held_back && !e.is_awaited(now) && now - e.protected_until >= children_hold_;
  // Of a spare key, what follows is found all the same: behind the one that another node has.
  return e.children > 0 && !in_vain && !e.spare ? hold::children : hold::none;
}

void key_space::hold_back(entry_index i, hold by, coarse_time now) noexcept {
  // `protected_until` is free to say since when children alone have kept the key, as long as it is not protected: a key
  // that is protected is not held back by children alone.
  auto& e = table_.entry(i);
  if (by == hold::children) {
    awaiting_children_ += e.awaits_children ? 0 : 1;
    e.awaits_children = true;
    if (!e.held_back)
      e.protected_until = now & coarse_clock::last;
    e.held_back = true;
    first_unprotected_ = std::min<coarse_time>(first_unprotected_, e.protected_until + children_hold_);
    return;
  }
  passed_over_awaited_ = passed_over_awaited_ || by == hold::awaited;
  if (e.is_awaited(now))
    return;
  e.held_back = false;
  if (e.is_protected(now))
    first_unprotected_ = std::min<coarse_time>(first_unprotected_, e.protected_until);
}

std::uint32_t key_space::remove_key(entry_index i, rank_number wanted_rank) {
  std::uint32_t freed = 0;
  for (const auto rank : ranks()) {
    const auto cell = table_.page(i, rank);
    if (!cell.live())
      continue;
    unpublish(i, rank, leave_reason::evicted);
    // Needs no rest: the key is not protected, so that whoever was told the slot has had the time that was promised.
    outbox_.release(rank, cell.where());
    if (rank == wanted_rank)
      ++freed;
  }
  ++evicted_keys_;
  settle(i);
  return freed;
}

void key_space::prefetch_for_removal(std::span<const entry_index> entries) const {
  for (const auto i : entries) {
    table_.prefetch_entry(i);
    table_.prefetch_details(i);
  }
  for (const auto i : entries) {
    table_.prefetch_index(table_.entry(i).key);
    if (const auto& parent = table_.parent(i); !parent.is_null())
      table_.prefetch_index(parent);
  }
  if (shard_count_ > 1)
    return; // most parents live in other shards
  for (const auto i : entries)
    if (const auto& parent = table_.parent(i); !parent.is_null())
      table_.prefetch_entry_of(parent);
}

void key_space::drain_into(registry_outbox& out) {
  const auto first = static_cast<std::ptrdiff_t>(out.slots.size());
  outbox_.drain_into(out);
  for (auto x = out.slots.begin() + first; x != out.slots.end(); ++x)
    if (!x->release.slots.empty())
      x->release.progress = progress_of(x->rank);
}

evict_reply key_space::evict(const eviction& what, coarse_time now) {
  const auto [rank, wanted, most_looks, force] = what;
  evict_reply reply;
  if (policy_->size() == 0)
    return reply;
  if (exhausted_ && !chance_ && now < first_unprotected_)
    return reply;
  exhausted_ = false;
  reply.more = true;
  std::array<entry_index, key_table::group_keys> group;
  for (std::uint32_t looks = 0; reply.slots < wanted && looks < most_looks;) {
    if (!force && shard_count_ > 1 && awaiting_children_ > std::uint64_t{wanted} + most_awaiting)
      break;
    const auto room = std::min<std::size_t>({group.size(), most_looks - looks, wanted - reply.slots});
    const auto n = policy_->propose(std::span(group).first(room));
    if (n == 0) {
      reply.more = false;
      break;
    }
    prefetch_for_removal(std::span(group).first(n));
    for (std::size_t c = 0; c < n; ++c, ++looks) {
      // The group was proposed before any of it went: removing a child may have freed its parent meanwhile, which then
      // goes at once, since children are looked at here.
      const auto held = held_by(group[c], now);
      if (held == hold::none) {
        freed_ = false;
        takes_awaited_ = takes_awaited_ && table_.entry(group[c]).is_awaited(now);
        reply.slots += remove_key(group[c], rank);
        looked_in_vain_ = 0;
        // Its parent goes before the rest of the group.
        if (freed_) {
          ++looks;
          break;
        }
        continue;
      }
      policy_->kept(group[c]);
      if (looked_in_vain_ == 0) {
        chance_ = false;
        passed_over_awaited_ = false;
        first_unprotected_ = coarse_never;
      }
      hold_back(group[c], held, now);
      if (++looked_in_vain_ < policy_->size())
        continue;
      // Every key was looked at. If one of them may have become evictable meanwhile, another round is due.
      looked_in_vain_ = 0;
      takes_awaited_ = passed_over_awaited_;
      exhausted_ = !chance_ && !takes_awaited_;
      reply.more = chance_ || takes_awaited_ || first_unprotected_ <= now;
      return reply;
    }
  }
  if (policy_->size() == 0)
    reply.more = false;
  return reply;
}

} // namespace troupe
