// The second half of key_space: which keys are evicted first, which may be evicted, and the eviction itself.

#include "actors/node/registry/key_space.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

// -- evict-first keys -----------------------------------------------------------------------------------------------

void key_space::mark_evict_first(entry_index i) noexcept {
  auto& e = table_.entry(i);
  // It is counted already.
  if (e.evict_first)
    return;
  e.evict_first = true;
  ++evict_first_keys_;
  // Children do not keep it any more, so it may be evictable now.
  if (e.awaits_children)
    await_no_more(e);
  round_.chance = true;
}

void key_space::unmark_evict_first(key_entry& e) noexcept {
  evict_first_keys_ -= e.evict_first ? 1 : 0;
  e.evict_first = false;
}

void key_space::evict_first(std::span<const entry_index> entries) {
  // Leased keys are passed to the policy when their last lease ends: until then the policy could only skip them.
  for (const auto i : entries) {
    mark_evict_first(i);
    if (table_.entry(i).leases == 0)
      evict_first_entries_.push_back(i);
  }
  policy_->marked_evict_first(evict_first_entries_);
  evict_first_entries_.clear();
}

void key_space::inserted(std::span<const entry_index> entries) {
  policy_->inserted(entries);
}

void key_space::fetched(std::span<const entry_index> entries, bool as_transient, coarse_time now, coarse_time until) {
  policy_->fetched(entries);
  round_.may_await = round_.may_await || !entries.empty();
  for (const auto i : entries) {
    auto& e = table_.entry(i);
    e.transient = as_transient;
    // A key that is leased or protected is held already and need not be awaited.
    if (e.leases == 0 && !e.is_protected(now))
      e.await(until);
  }
}

std::uint32_t key_space::count_awaited(std::span<const entry_index> entries, coarse_time now) const noexcept {
  if (!round_.may_await)
    return 0;
  return static_cast<std::uint32_t>(
      std::ranges::count_if(entries, [&](entry_index i) { return table_.entry(i).is_awaited(now); }));
}

// -- other groups of layers -------------------------------------------------------------------------------------------

void key_space::collect_group_changes(bool wanted) {
  if (!wanted)
    group_changes_.reset();
  else if (!group_changes_)
    group_changes_ = std::make_unique<group_changes>();
}

key_space::group_changes key_space::take_group_changes() {
  return group_changes_ ? std::exchange(*group_changes_, {}) : group_changes{};
}

bool key_space::has_page_of(const key_digest& key) const noexcept {
  const auto i = table_.find(key);
  return i != no_entry && table_.entry(i).live + table_.entry(i).reserved > 0;
}

bool key_space::ends_at(const key_digest& key) const noexcept {
  const auto i = table_.find(key);
  return i != no_entry && table_.entry(i).live > 0 && table_.entry(i).children <= 0;
}

void key_space::no_hit_needs(std::span<const key_digest> keys) {
  for (const auto& key : keys) {
    const auto i = table_.find(key);
    if (i == no_entry)
      continue;
    const auto& e = table_.entry(i);
    // A request that has leased the key is about to use it, or to store the pages that it lacks.
    if (e.live > 0 && e.leases == 0 && e.reserved == 0)
      evict_first_entries_.push_back(i);
  }
  if (evict_first_entries_.empty())
    return;
  // They are examined once more in this round, in which they may have been kept already.
  round_.chance = true;
  // The policy takes keys in the order of a prefix, and proposes the last one first.
  std::ranges::reverse(evict_first_entries_);
  policy_->marked_evict_first(evict_first_entries_);
  evict_first_entries_.clear();
}

// -- eviction -------------------------------------------------------------------------------------------------------

key_space::hold key_space::held_by(entry_index i, coarse_time now) const noexcept {
  const auto& e = table_.entry(i);
  // A promise to a client or a writer holds the key in every case.
  if (e.leases > 0 || e.reserved > 0 || e.is_protected(now))
    return hold::other;
  // The request that fetched the key is about to lease it, unless nothing else can be evicted.
  if (e.is_awaited(now) && !round_.takes_awaited)
    return hold::awaited;
  // Parents come from clients, which may name keys in a cycle across shards and requests. So children hold a key only
  // for a limited time.
  const bool in_vain = e.held_back && !e.is_awaited(now) && now - e.protected_until >= children_hold_;
  // The keys that follow an evict-first key are still found, because another node has that key too.
  return e.children > 0 && !in_vain && !e.evict_first ? hold::children : hold::none;
}

void key_space::hold_back(entry_index i, hold by, coarse_time now) noexcept {
  // `protected_until` can store since when only children have kept the key while the key is not protected: a protected
  // key is not held back by children alone.
  auto& e = table_.entry(i);
  if (by == hold::children) {
    awaiting_children_ += e.awaits_children ? 0 : 1;
    e.awaits_children = true;
    // The first time counts, so that repeated checks do not extend it.
    if (!e.held_back)
      e.protected_until = now & coarse_clock::last;
    e.held_back = true;
    round_.first_unprotected = std::min<coarse_time>(round_.first_unprotected, e.protected_until + children_hold_);
    return;
  }
  round_.passed_over_awaited = round_.passed_over_awaited || by == hold::awaited;
  // An awaited key keeps its own time.
  if (e.is_awaited(now))
    return;
  e.held_back = false;
  // Another check can succeed when the protection ends.
  if (e.is_protected(now))
    round_.first_unprotected = std::min<coarse_time>(round_.first_unprotected, e.protected_until);
}

std::uint32_t key_space::remove_key(entry_index i, const eviction& what, lookup_history::batch& notes) {
  std::uint32_t freed = 0;
  notes.add(table_.entry(i).key, table_.entry(i).evict_first ? key_event::evicted_copy : what.why);
  if (group_changes_)
    group_changes_->evicted.push_back(table_.entry(i).key);
  round_.evicting = true;
  for (const auto rank : ranks()) {
    const auto cell = table_.page(i, rank);
    if (!cell.live())
      continue;
    unpublish(i, rank, leave_reason::evicted);
    // No rest is needed: the key is not protected, so every client that received the slot has had the promised time.
    outbox_.release(rank, cell.where());
    if (rank == what.rank)
      ++freed;
  }
  ++evicted_keys_;
  settle(i);
  round_.evicting = false;
  return freed;
}

void key_space::prefetch_for_removal(std::span<const entry_index> entries) const {
  for (const auto i : entries) {
    table_.prefetch_entry(i);
    table_.prefetch_details(i);
    if (const auto* const described = outbox_.described())
      described->prefetch(i);
  }
  for (const auto i : entries) {
    table_.prefetch_index(table_.entry(i).key);
    if (const auto& parent = table_.parent(i); !parent.is_null())
      table_.prefetch_index(parent);
  }
  if (shard_count_ > 1)
    return; // most parents are in other shards
  for (const auto i : entries)
    if (const auto& parent = table_.parent(i); !parent.is_null())
      table_.prefetch_entry_of(parent);
}

void key_space::drain_into(registry_outbox& out) {
  const auto first = static_cast<std::ptrdiff_t>(out.slots.size());
  outbox_.drain_into(out);
  for (auto x = out.slots.begin() + first; x != out.slots.end(); ++x)
    // Only released slots count as progress of an eviction.
    if (!x->release.slots.empty())
      x->release.progress = progress_of(x->rank);
}

evict_reply key_space::evict(const eviction& what, coarse_time now) {
  const auto wanted = what.wanted;
  const auto most_looks = what.most_looks;
  evict_reply reply;
  if (policy_->size() == 0)
    return reply;
  // Nothing has changed since a whole round without success, so another round would fail too.
  if (round_.exhausted && !round_.chance && now < round_.first_unprotected)
    return reply;
  round_.exhausted = false;
  reply.more = true;
  std::array<entry_index, key_table::group_keys> group;
  lookup_history::batch notes(history_.get(), id_, what.rank);
  for (std::uint32_t looks = 0; reply.slots < wanted && looks < most_looks;) {
    // Parents wait for messages from other shards. More eviction now would take younger keys in their place.
    if (!what.force && shard_count_ > 1 && awaiting_children_ > std::uint64_t{wanted} + most_awaiting)
      break;
    const auto room = std::min<std::size_t>({group.size(), most_looks - looks, wanted - reply.slots});
    const auto n = policy_->propose(std::span(group).first(room));
    if (n == 0) {
      reply.more = false;
      break;
    }
    prefetch_for_removal(std::span(group).first(n));
    for (std::size_t c = 0; c < n; ++c, ++looks) {
      // The group was proposed as a whole. Removing a child may have freed its parent, which is then evicted at once,
      // because children are checked here.
      const auto held = held_by(group[c], now);
      if (held == hold::none) {
        round_.freed = false;
        // An ordinary key could be evicted, so awaited keys are safe again.
        round_.takes_awaited = round_.takes_awaited && table_.entry(group[c]).is_awaited(now);
        reply.slots += remove_key(group[c], what, notes);
        round_.in_vain = 0;
        // Its parent is evicted before the rest of the group.
        if (round_.freed) {
          ++looks;
          break;
        }
        continue;
      }
      policy_->kept(group[c]);
      // A new round begins: what is recorded about a round starts from nothing.
      if (round_.in_vain == 0) {
        round_.chance = false;
        round_.passed_over_awaited = false;
        round_.first_unprotected = coarse_never;
      }
      hold_back(group[c], held, now);
      if (++round_.in_vain < policy_->size())
        continue;
      // Every key was examined. If one of them may have become evictable meanwhile, another round is needed.
      round_.in_vain = 0;
      // Awaited keys may be evicted in the next round, if any were passed over.
      round_.takes_awaited = round_.passed_over_awaited;
      round_.exhausted = !round_.chance && !round_.takes_awaited;
      reply.more = round_.chance || round_.takes_awaited || round_.first_unprotected <= now;
      return reply;
    }
  }
  if (policy_->size() == 0)
    reply.more = false;
  return reply;
}

} // namespace troupe
