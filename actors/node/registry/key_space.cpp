#include "actors/node/registry/key_space.hpp"

#include "messages/registry_slot_messages.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <utility>

namespace troupe {

namespace {

/// Ranks of the namespace are below this.
std::uint32_t limit_of(const key_space::settings& how) {
  return how.options.automatic ? how.options.max_ranks : how.spec.world_size;
}

} // namespace

key_space::key_space(const settings& how)
    : spec_(std::make_shared<const namespace_spec>(how.spec)), options_(how.options), id_(spec_->id()),
      shard_(how.shard), shard_count_(how.shard_count),
      children_hold_(coarse_clock::since_beginning(how.children_hold)), table_(limit_of(how), how.hash_seed),
      policy_(how.eviction([this](entry_index i) { return table_.hash_of(i); })), budget_(how.memory),
      memory_(how.memory), outbox_(id_, limit_of(how), shard_count_, how.change_feed, how.describes),
      history_(how.history) {
  const auto limit = limit_of(how);
  ranks_ = std::make_unique<rank_state[]>(limit);
  keys_by_live_.assign(std::size_t{limit} + 1, 0);
  outbox_.change(namespace_added{spec_, options_});
  if (auto* const described = outbox_.described())
    described->add(events::namespace_served{spec_});
  if (!options_.automatic)
    for (rank_number rank = 0; rank < limit; ++rank) {
      ranks_[rank].registered = true;
      table_.add_rank(rank);
    }
  if (!ranks().empty())
    complete_at_ = static_cast<std::uint32_t>(ranks().size());
}

void key_space::share_with(namespace_origin other) {
  // For an engine of the `hf3fs` protocols the config decides to which namespace its files belong, so pages of such a
  // namespace are trusted less after a restart. The stricter origin replaces the API's.
  if (other != namespace_origin::protocol || options_.origin != namespace_origin::api)
    return;
  options_.origin = other;
  outbox_.change(namespace_added{spec_, options_});
}

void key_space::add_rank(rank_number rank, std::uint32_t slots, incarnation_number incarnation) {
  auto& r = ranks_[rank];
  r.retired = false;
  // 0 keeps the known incarnation.
  if (incarnation == 0)
    incarnation = r.incarnation;
  // The registration is unchanged, so there is nothing to store.
  if (r.registered && r.slots == slots && r.incarnation == incarnation)
    return;
  r.slots = slots;
  // A clear counts only for the slots that the rank had then.
  if (r.cleared_slots != slots)
    r.cleared_slots = 0;
  r.incarnation = incarnation;
  // Stored before any page of the rank, because a shard's changes are stored in order.
  outbox_.change(rank_added{id_, rank, slots, incarnation});
  // Only the number of slots or the incarnation is new: the rank has its pages array already.
  if (std::exchange(r.registered, true))
    return;
  table_.add_rank(rank);
  complete_at_ = static_cast<std::uint32_t>(ranks().size());
  // No key is complete any more. Where events are published, this is the one step that looks at all keys.
  if (outbox_.described() != nullptr)
    for (entry_index i = 0; i < table_.end(); ++i)
      end_description(i);
}

void key_space::note_cleared(rank_number rank) noexcept {
  for (const auto r : ranks())
    if (rank == all_ranks || rank == r)
      ranks_[r].cleared_slots = ranks_[r].slots;
}

rank_info key_space::info_of(rank_number rank) const {
  const auto& r = ranks_[rank];
  return {rank, r.slots, r.pages, r.reserved, r.withheld};
}

entry_index key_space::append_leading_complete(std::span<const key_digest> keys,
                                               std::vector<entry_index>& found) const {
  std::array<entry_index, 512> group;
  // The first group is small, because a lookup that finds little mostly misses from the first key.
  for (std::size_t begin = 0, size = key_table::group_keys; begin < keys.size(); begin += size, size = group.size()) {
    const auto part = keys.subspan(begin, std::min(size, keys.size() - begin));
    table_.find(part, group);
    std::size_t n = 0;
    while (n < part.size() && group[n] != no_entry && complete(group[n]))
      ++n;
    found.insert(found.end(), group.begin(), group.begin() + static_cast<std::ptrdiff_t>(n));
    // An incomplete key ends the prefix.
    if (n < part.size())
      return group[n];
  }
  return no_entry;
}

entry_index key_space::append_complete(std::span<const key_digest> keys, std::vector<entry_index>& found,
                                       std::vector<std::uint8_t>& marks) const {
  const auto found_before = found.size();
  auto missing = no_entry;
  std::array<entry_index, 512> group;
  for (std::size_t begin = 0; begin < keys.size(); begin += group.size()) {
    const auto part = keys.subspan(begin, std::min(group.size(), keys.size() - begin));
    table_.find(part, group);
    for (std::size_t n = 0; n < part.size(); ++n) {
      const bool there = group[n] != no_entry && complete(group[n]);
      marks.push_back(there ? 1 : 0);
      if (there)
        found.push_back(group[n]);
      else if (found.size() - found_before == begin + n)
        missing = group[n];
    }
  }
  return missing;
}

bool key_space::lease(std::span<const entry_index> entries, std::vector<entry_index>& held, std::size_t most) {
  const auto before = held.size();
  // A lease lists a key once, however often it is requested. All listed entries are marked first, so a duplicate is
  // found without a search. The marks are removed before the call ends.
  for (const auto i : held)
    table_.entry(i).marked = true;
  bool fits = true;
  for (const auto i : entries) {
    auto& e = table_.entry(i);
    if (e.marked)
      continue;
    if (held.size() == most) {
      fits = false;
      break;
    }
    e.marked = true;
    ++e.leases;
    held.push_back(i);
  }
  // A lease that does not fit must not keep a part of the request, and is no use of its keys.
  for (std::size_t n = 0; n < held.size(); ++n) {
    auto& e = table_.entry(held[n]);
    e.marked = false;
    if (n < before)
      continue;
    if (fits)
      e.hold_back_no_more();
    else
      --e.leases;
  }
  if (!fits)
    held.resize(before);
  return fits;
}

void key_space::give_back(std::span<const entry_index> entries) {
  for (std::size_t n = 0; n < entries.size(); ++n) {
    if (n + key_table::prefetch_distance < entries.size())
      table_.prefetch_entry(entries[n + key_table::prefetch_distance]);
    const auto i = entries[n];
    auto& e = table_.entry(i);
    assert(e.in_use() && e.leases > 0);
    // Another lease still holds the entry.
    if (--e.leases > 0)
      continue;
    // The order matters: withheld slots are released while the entry still exists.
    round_.chance = true;
    round_.takes_awaited = false;
    e.made_under_lease = false;
    // Only now: the reader that fetched a transient key must be able to find and read it first.
    if (e.transient)
      mark_evict_first(i);
    // Its place in the policy was not changed while it was leased.
    if (e.evict_first)
      evict_first_entries_.push_back(i);
    if (e.withheld)
      release_withheld(i);
    if (e.live == 0)
      settle(i);
  }
  if (!evict_first_entries_.empty())
    policy_->marked_evict_first(evict_first_entries_);
  evict_first_entries_.clear();
}

void key_space::touch(std::span<const entry_index> entries, std::uint64_t missing, std::uint32_t own, coarse_time now,
                      bool by_peer) {
  // Backwards: the entry that is reported last is the youngest, and that is where the prefix begins.
  for (auto end = entries.size(); end > 0;) {
    const auto is_again = [&](entry_index i) {
      auto& e = table_.entry(i);
      // A use ends the wait for children: the key has its regular turn again.
      if (e.awaits_children)
        await_no_more(e);
      unmark_evict_first(e);
      return e.leases > own || e.is_protected(now);
    };
    const bool again = is_again(entries[end - 1]);
    auto first = end - 1;
    // The policy gets runs of entries that were all in use, or all not in use.
    while (first > 0 && is_again(entries[first - 1]) == again)
      --first;
    policy_->touched(entries.subspan(first, end - first),
                     {.missing = in_all_shards(missing), .again = again, .by_peer = by_peer});
    end = first;
  }
}

void key_space::touch_again(std::span<const entry_index> entries) {
  for (auto end = entries.size(); end > 0;) {
    const auto last = end;
    // Evict-first keys keep their place, because a save by another rank is not a use.
    while (end > 0 && !table_.entry(entries[end - 1]).evict_first)
      --end;
    if (end < last)
      policy_->touched(entries.subspan(end, last - end), {.again = true});
    else
      --end;
  }
}

entry_index key_space::find_or_create(const key_digest& key, entry_index hint) {
  const auto found = table_.refresh(hint, key);
  return found != no_entry ? found : table_.create(key);
}

void key_space::make_room(std::uint64_t fresh, rank_number rank, coarse_time now) {
  // Freed entries are memory that is counted already.
  const auto unused = table_.unused();
  may_grow_ = fresh <= unused || !budget_ || budget_->has_room((fresh - unused) * table_.bytes_per_key());
  // The budget has room, so nothing needs to be evicted.
  if (may_grow_)
    return;
  // The request waits meanwhile, so only a bounded number of held keys at the front is passed over.
  constexpr std::uint64_t looks_in_vain = 64;
  const auto wanted = static_cast<std::uint32_t>(fresh - unused);
  const auto looks = static_cast<std::uint32_t>(wanted + looks_in_vain);
  const auto freed = evict({rank, wanted, looks, true, key_event::evicted_for_index}, now).slots;
  if (freed >= wanted)
    return;
  // Awaited keys are evicted rather than refusing the request.
  round_.takes_awaited = true;
  evict({rank, wanted - static_cast<std::uint32_t>(freed), looks, true, key_event::evicted_for_index}, now);
  round_.takes_awaited = false;
}

entry_index key_space::find_or_admit(const key_digest& key, entry_index hint) {
  const auto found = table_.refresh(hint, key);
  if (found != no_entry)
    return found;
  // A freed entry needs no new memory, so it may be reused in any case.
  return may_grow_ || table_.unused() > 0 ? table_.create(key) : no_entry;
}

void key_space::end_request(std::span<const entry_index> entries) noexcept {
  for (const auto i : entries)
    if (i != no_entry)
      table_.entry(i).marked = false;
}

void key_space::adopt_parent(entry_index i, const key_digest& parent, entry_index previous) {
  // The first parent stays: another rank's writer may name a different one, and a replacement would have to be
  // subtracted.
  if (!table_.parent(i).is_null())
    return;
  // Mostly the parent is the key before it in the batch, so no lookup is needed.
  if (previous != no_entry && table_.entry(previous).key == parent) {
    ++table_.entry(previous).children;
  } else {
    change_children({parent, 1});
  }
  table_.parent(i) = parent;
  has_chains_ = true;
}

void key_space::change_children(const child_delta& change) {
  const auto target = shard_of(change.parent, shard_count_);
  // The parent's shard counts its children; another shard is notified through the outbox.
  if (target == shard_)
    add_children(change);
  else
    outbox_.count_children(target, change);
}

bool key_space::add_children(const child_delta& change) {
  const auto& [key, delta, evicted] = change;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (delta < -most || delta > most)
    return false;
  // A key that is not here becomes a ghost: its children may be stored before it or stay longer, and the count must be
  // right when the key arrives. If the message of a removal arrives first, the count is negative for a moment.
  const auto i = find_or_create(key, no_entry);
  if (i == no_entry)
    return false;
  auto& e = table_.entry(i);
  const auto children = e.children + delta;
  const bool fits = children >= -most && children <= most;
  if (fits)
    e.children = static_cast<std::int32_t>(children);
  // Also for a negative count, which is corrected when the other message arrives.
  if (e.children <= 0)
    note_childless(i, evicted != 0);
  settle(i);
  return fits;
}

void key_space::note_childless(entry_index i, bool was_evicted) {
  round_.chance = true;
  auto& e = table_.entry(i);
  // It was not proposed since its last use, so its place in the policy is right.
  if (!e.awaits_children) {
    if (group_changes_ && was_evicted && e.live > 0)
      group_changes_->ends.push_back(e.key);
    return;
  }
  await_no_more(e);
  policy_->freed(i);
  round_.freed = true;
}

void key_space::await_no_more(key_entry& e) noexcept {
  e.awaits_children = false;
  --awaiting_children_;
}

void key_space::reserve(entry_index i, rank_number rank, page_cell by) {
  auto& cell = table_.page(i, rank);
  assert(!cell.live() && !cell.reserved() && by.reserved());
  cell = by;
  ++table_.entry(i).reserved;
  ++ranks_[rank].reserved;
}

void key_space::assign_slot(entry_index i, rank_number rank, slot_number slot) {
  // Without an index there is nothing to record; a slot outside the rank cannot be looked up.
  if (!options_.slot_index || !has_slot(rank, slot))
    return;
  // The previous value is overwritten and never erased: the page of the entry says whether it still has the slot.
  auto& assigned = ranks_[rank].assigned;
  assigned.grow_to(std::uint64_t{slot} + 1);
  assigned[slot] = i + 1;
}

entry_index key_space::assigned_to(rank_number rank, slot_number slot) const noexcept {
  const auto& assigned = ranks_[rank].assigned;
  return slot < assigned.size() && assigned[slot] != 0 ? assigned[slot] - 1 : no_entry;
}

void key_space::unreserve(entry_index i, rank_number rank, slot_ref where, coarse_time until) {
  auto& cell = table_.page(i, rank);
  assert(cell.reserved());
  cell = {};
  --table_.entry(i).reserved;
  --ranks_[rank].reserved;
  // Its writer may still be writing until then, so the slot waits.
  if (where.generation != 0 && until > 0) {
    ++ranks_[rank].withheld;
    withhold_until({until, rank, where, false, false});
  } else if (where.generation != 0) {
    outbox_.abort(rank, where);
  }
  round_.chance = true;
  settle(i);
}

bool key_space::make_live(entry_index i, rank_number rank, slot_ref where) {
  auto& e = table_.entry(i);
  assert(where.generation != 0);
  table_.page(i, rank) = page_cell::live_at(where);
  // The key moves from the count of its former number of pages to the next.
  if (e.live > 0)
    --keys_by_live_[e.live];
  ++e.live;
  ++keys_by_live_[e.live];
  e.made_under_lease = e.made_under_lease || e.leases > 0;
  ++ranks_[rank].pages;
  ranks_[rank].cleared_slots = 0;
  assign_slot(i, rank, where.slot);
  round_.chance = true;
  return e.live == 1;
}

bool key_space::publish(entry_index i, rank_number rank, slot_ref where) {
  auto& e = table_.entry(i);
  assert(table_.page(i, rank).reserved());
  --e.reserved;
  --ranks_[rank].reserved;
  const bool first = make_live(i, rank, where);
  outbox_.publish(rank, where);
  // Builds the record only if it will be stored. A page beyond the slab is in memory only, and ends with the process.
  if (outbox_.feeds() && has_slot(rank, where.slot))
    outbox_.change(page_published{{id_, e.key, table_.parent(i), where, rank}, ranks_[rank].incarnation});
  return first;
}

bool key_space::restore(entry_index i, rank_number rank, slot_ref where) {
  assert(!table_.page(i, rank).live() && !table_.page(i, rank).reserved());
  return make_live(i, rank, where);
}

void key_space::end_description(entry_index i) {
  auto* const described = outbox_.described();
  if (described != nullptr && described->lose(i, table_.entry(i).key))
    outbox_.change(description_ended{id_, table_.entry(i).key});
}

void key_space::unpublish(entry_index i, rank_number rank, leave_reason why) {
  auto& e = table_.entry(i);
  assert(table_.page(i, rank).live() && e.live > 0);
  const auto slot = std::exchange(table_.page(i, rank), {}).where().slot;
  end_description(i);
  --ranks_[rank].pages;
  --keys_by_live_[e.live];
  // Without a page the key leaves the policy, and marks that concern eviction end.
  if (--e.live == 0) {
    policy_->left(i, why);
    unmark_evict_first(e);
    e.transient = false;
    e.hold_back_no_more();
    if (e.awaits_children)
      await_no_more(e);
  } else {
    ++keys_by_live_[e.live];
  }
  if (outbox_.feeds() && has_slot(rank, slot))
    outbox_.change(page_unpublished{id_, e.key, rank});
}

void key_space::invalidate(entry_index i, rank_number rank, coarse_time now, bool suspect) {
  const auto where = table_.page(i, rank).where();
  unpublish(i, rank, leave_reason::erased);
  // New lookups do not find the page from here on. Earlier readers may still read it: under a lease, or until the
  // protection ends.
  auto& e = table_.entry(i);
  const coarse_time until = e.is_protected(now) ? e.protected_until : 0;
  const withheld_slot slot{until, rank, where, true, suspect};
  // A lease has no known end, so the slot waits with the entry; a protection has, so it waits by time.
  if (e.leases > 0) {
    e.withheld = true;
    withheld_[i].push_back(slot);
    ++ranks_[rank].withheld;
  } else if (slot.until > 0) {
    ++ranks_[rank].withheld;
    withhold_until(slot);
  } else {
    notify_allocator(slot);
  }
  settle(i);
}

void key_space::drop(entry_index i, rank_number rank) {
  unpublish(i, rank, leave_reason::erased);
  settle(i);
}

entry_index key_space::clear(rank_number rank, entry_index from, std::uint32_t most, coarse_time now,
                             std::uint64_t& pages) {
  auto i = from;
  for (std::uint32_t looks = 0; looks < most && i < table_.end(); ++looks, ++i)
    for (const auto r : ranks())
      if ((rank == all_ranks || rank == r) && table_.page(i, r).live()) {
        note(table_.entry(i).key, key_event::erased, r);
        invalidate(i, r, now, false);
        ++pages;
      }
  return std::min(i, table_.end());
}

void key_space::withhold_until(const withheld_slot& what) {
  timed_.push_back(what);
  std::push_heap(timed_.begin(), timed_.end(), later);
}

void key_space::notify_allocator(const withheld_slot& what) {
  // A reserved slot returns as aborted. The slot of a suspect page rests, because a writer may still be active.
  if (!what.was_live)
    outbox_.abort(what.rank, what.where);
  else if (what.suspect)
    outbox_.suspect(what.rank, what.where);
  else
    outbox_.release(what.rank, what.where);
}

void key_space::release_withheld(entry_index i) {
  const auto found = withheld_.find(i);
  assert(found != withheld_.end());
  for (const auto& slot : found->second) {
    // The slot may still be promised to a slot client; `release_due` checks that by time. It stays withheld, so the
    // count does not change.
    if (slot.until > 0) {
      withhold_until(slot);
      continue;
    }
    --ranks_[slot.rank].withheld;
    notify_allocator(slot);
  }
  withheld_.erase(found);
  table_.entry(i).withheld = false;
}

std::size_t key_space::release_due(coarse_time now, std::size_t most) {
  std::size_t n = 0;
  for (; n < most && !timed_.empty() && timed_.front().until <= now; ++n) {
    std::pop_heap(timed_.begin(), timed_.end(), later);
    const auto slot = timed_.back();
    timed_.pop_back();
    --ranks_[slot.rank].withheld;
    notify_allocator(slot);
  }
  return n;
}

void key_space::forget_timed(rank_number rank) {
  ranks_[rank].withheld -= std::erase_if(timed_, [&](const withheld_slot& slot) { return slot.rank == rank; });
  std::make_heap(timed_.begin(), timed_.end(), later);
}

std::uint64_t key_space::withheld_by_leases(rank_number rank) const noexcept {
  std::uint64_t timed = 0;
  for (const auto& slot : timed_)
    timed += slot.rank == rank ? 1 : 0;
  return ranks_[rank].withheld - timed;
}

std::optional<coarse_time> key_space::next_release() const noexcept {
  if (timed_.empty())
    return std::nullopt;
  return timed_.front().until;
}

std::uint64_t key_space::withheld_slots() const noexcept {
  std::uint64_t n = 0;
  for (const auto rank : ranks())
    n += ranks_[rank].withheld;
  return n;
}

void key_space::settle(entry_index i) {
  auto& e = table_.entry(i);
  if (!e.ghost())
    return;
  // A ghost holds nothing, so it must not hold its parent. This is at most one step: a parent that is present holds
  // itself, and a ghost has no parent.
  if (const auto parent = std::exchange(table_.parent(i), {}); !parent.is_null())
    change_children({parent, -1, round_.evicting ? 1U : 0U});
  // With children the entry stays as a ghost that counts them.
  if (e.children == 0)
    table_.erase(i);
}

std::uint64_t key_space::resident_bytes() const noexcept {
  auto bytes = table_.resident_bytes() + policy_->resident_bytes() + timed_.capacity() * sizeof(withheld_slot) +
               withheld_.size() * (sizeof(entry_index) + sizeof(std::vector<withheld_slot>) + 4 * sizeof(void*));
  for (const auto rank : ranks())
    bytes += ranks_[rank].assigned.resident_bytes();
  if (const auto* const described = outbox_.described())
    bytes += described->resident_bytes();
  return bytes;
}

} // namespace troupe
