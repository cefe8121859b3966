// Full scans of a registry's state, for tests and simulations only.

#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace troupe {

namespace {

std::string number(std::uint64_t x) {
  return std::to_string(x);
}

std::string name_of(const ticket& x) {
  return number(x.owner) + "/" + number(x.sequence);
}

} // namespace

// -- key space ------------------------------------------------------------------------------------------------------

void key_space::for_each_key(const std::function<void(const key_info&)>& f) const {
  for (entry_index i = 0; i < table_.end(); ++i) {
    const auto& e = table_.entry(i);
    if (e.in_use())
      f({e.key, table_.parent(i), e.children, e.leases, e.live, e.reserved, complete(i), e.ghost(), e.evict_first,
         e.held_back ? coarse_time{0} : coarse_time{e.protected_until}});
  }
}

void key_space::for_each_withheld(const std::function<void(rank_number, slot_ref)>& f) const {
  for (const auto& [entry, slots] : withheld_)
    for (const auto& slot : slots)
      f(slot.rank, slot.where);
  for (const auto& slot : timed_)
    f(slot.rank, slot.where);
}

std::string key_space::check_entry(entry_index i, const std::unordered_map<entry_index, std::uint32_t>& leases) const {
  const auto& e = table_.entry(i);
  std::uint32_t live = 0;
  std::uint32_t reserved = 0;
  for (const auto rank : ranks()) {
    const auto cell = table_.page(i, rank);
    live += cell.live() ? 1 : 0;
    reserved += cell.reserved() ? 1 : 0;
    if (options_.slot_index && cell.live() && assigned_to(rank, cell.where().slot) != i)
      return "key " + to_string(e.key) + ": it is not found by its slot";
  }
  const auto found = leases.find(i);
  const auto held = found == leases.end() ? 0 : found->second;
  if (!e.in_use())
    return live + reserved + held == 0 ? "" : "entry " + number(i) + " is unused but has pages or leases";
  const auto what = "key " + to_string(e.key) + ": ";
  if (table_.find(e.key) != i)
    return what + "the index does not find its entry";
  if (e.live != live || e.reserved != reserved)
    return what + "has counted " + number(e.live) + " live and " + number(e.reserved) + " reserved pages, has " +
           number(live) + " and " + number(reserved);
  if (e.leases != held)
    return what + "counts " + number(e.leases) + " leases, but " + number(held) + " list it";
  if (e.ghost() && (e.children == 0 || !table_.parent(i).is_null()))
    return what + "nothing holds the entry, but it was not removed";
  if (e.live == 0 ? e.evict_first || e.transient : e.evict_first && e.awaits_children)
    return what + "it is spare without a page, or spare while it awaits children";
  if (e.made_under_lease && e.leases == 0)
    return what + "made_under_lease is set without a lease";
  if (e.marked)
    return what + "a mark was left behind";
  if (e.withheld != withheld_.contains(i) || (e.withheld && e.leases == 0))
    return what + "withheld slots without a lease, or without a record";
  return {};
}

std::string key_space::check_policy() const {
  std::vector<entry_index> order;
  policy_->for_each([&](entry_index i) { order.push_back(i); });
  const std::unordered_set<entry_index> distinct(order.begin(), order.end());
  if (order.size() != policy_->size() || distinct.size() != order.size())
    return "the eviction policy lists " + number(order.size()) + " keys, but has counted " + number(policy_->size());
  std::uint64_t with_page = 0;
  for (entry_index i = 0; i < table_.end(); ++i) {
    const auto& e = table_.entry(i);
    if (!e.in_use())
      continue;
    with_page += e.live > 0 ? 1 : 0;
    if ((e.live > 0) != distinct.contains(i))
      return "key " + to_string(e.key) +
             ": it is in the eviction policy without a page, or has a page and is not in the policy";
  }
  return with_page == order.size() ? "" : "the eviction policy lists an unused entry";
}

std::string key_space::check_counts() const {
  std::uint64_t complete_ones = 0;
  std::vector<std::uint64_t> by_live(keys_by_live_.size());
  std::unordered_map<rank_number, rank_info> by_rank;
  for (entry_index i = 0; i < table_.end(); ++i) {
    const auto& e = table_.entry(i);
    if (e.live > 0)
      ++by_live[e.live];
    complete_ones += e.in_use() && e.live == ranks().size() && e.live > 0 ? 1 : 0;
    if (complete(i) != (e.in_use() && e.live == ranks().size() && e.live > 0))
      return "key " + to_string(e.key) + ": it is complete without all pages, or incomplete with all pages";
    for (const auto rank : ranks()) {
      by_rank[rank].pages += table_.page(i, rank).live() ? 1 : 0;
      by_rank[rank].reserved += table_.page(i, rank).reserved() ? 1 : 0;
    }
  }
  if (complete_ones != complete_keys() || by_live != keys_by_live_)
    return number(complete_ones) + " keys are complete, but the count is " + number(complete_keys());
  for_each_withheld([&](rank_number rank, slot_ref) { ++by_rank[rank].withheld; });
  for (const auto rank : ranks()) {
    const auto counted = info_of(rank);
    auto& found = by_rank[rank];
    found.rank = rank;
    found.slots = counted.slots;
    if (found != counted)
      return "the counts of rank " + number(rank) + " are wrong";
  }
  if (!std::is_heap(timed_.begin(), timed_.end(), later))
    return "withheld slots are not a heap by time";
  return {};
}

std::string key_space::check(const std::unordered_map<entry_index, std::uint32_t>& leases) const {
  std::uint64_t used = 0;
  std::unordered_map<key_digest, std::int64_t> children;
  for (entry_index i = 0; i < table_.end(); ++i) {
    if (auto wrong = check_entry(i, leases); !wrong.empty())
      return wrong;
    if (!table_.entry(i).in_use())
      continue;
    ++used;
    if (!table_.parent(i).is_null())
      ++children[table_.parent(i)];
  }
  if (used != table_.size())
    return number(used) + " entries are in use, but the index has " + number(table_.size());
  if (auto wrong = check_counts(); !wrong.empty())
    return wrong;
  for (entry_index i = 0; shard_count_ == 1 && i < table_.end(); ++i)
    if (const auto& e = table_.entry(i); e.in_use() && children[e.key] != e.children)
      return "key " + to_string(e.key) + ": has counted " + std::to_string(e.children) + " children, but has " +
             std::to_string(children[e.key]);
  return check_policy();
}

// -- leases, reservations -------------------------------------------------------------------------------------------

std::string shard_leases::check() const {
  std::vector<std::unordered_map<entry_index, std::uint32_t>> held(namespaces_.end());
  std::string wrong;
  std::uint64_t leases = 0;
  std::map<std::pair<owner_id, std::uint32_t>, std::unordered_set<entry_index>> counted;
  leases_.for_each([&](const lease& l) {
    ++leases;
    if (l.counts)
      counted[{l.name.owner, l.ns}].insert(l.entries.begin(), l.entries.end());
    std::unordered_set<entry_index> once;
    for (const auto entry : l.entries) {
      if (!once.insert(entry).second)
        wrong = "lease " + name_of(l.name) + " lists entry " + number(entry) + " twice";
      ++held[l.ns][entry];
    }
  });
  if (leases != leases_.size())
    wrong = "the lease table is inconsistent";
  for (const auto& [holder, entries] : counted)
    if (holds_.count(holder.first, holder.second) != entries.size())
      wrong = "owner " + number(holder.first) + " holds " + number(entries.size()) + " keys, but the count is " +
              number(holds_.count(holder.first, holder.second));
  namespaces_.for_each([&](std::uint32_t at, const key_space& ns) {
    if (!wrong.empty())
      return;
    wrong = ns.check(held[at]);
    if (!wrong.empty())
      wrong.insert(0, "namespace \"" + ns.spec().name + "\": ");
  });
  return wrong;
}

std::string shard_writes::check() const {
  std::string wrong;
  std::uint64_t listed = 0;
  reservations_.for_each([&](reservation_number at, const reservation& r) {
    const auto& ns = namespaces_.at(r.name.ns);
    const auto what = "reservation " + name_of(r.name.ticket);
    std::uint32_t open = 0;
    for (std::uint32_t i = 0; i < r.pages.size(); ++i) {
      if (r.pages[i] == no_reserved_page)
        continue;
      ++open;
      const auto& page = reservations_.page(r.pages[i]);
      const auto cell = ns.table().page(page.entry, r.name.rank);
      const auto which = what + ": page " + number(i);
      if (page.by != at || page.place != i || !cell.reserved() || cell.reserved_page() != r.pages[i])
        wrong = which + " is not reserved for it";
      const bool has_slot = page.where.generation != 0;
      if (has_slot != (r.state == reservation::phase::open))
        wrong = which + " has a slot before it was granted, or none after";
      if (reservations_.has_page_deadline(r.pages[i]) != (has_slot && r.shareable()))
        wrong = which + " has a deadline of its own before its slot, has none after, or is not shareable";
      if (has_slot && ns.options().slot_index && ns.assigned_to(r.name.rank, page.where.slot) != page.entry)
        wrong = which + " is not found by its slot";
      if (page.shared != 0 && !r.shareable())
        wrong = which + " was shared but is not shareable";
    }
    listed += open;
    if (open != r.open_pages || open == 0)
      wrong = what + " has counted " + number(r.open_pages) + " pages, but has " + number(open);
  });
  std::uint64_t marked = 0;
  namespaces_.for_each([&](std::uint32_t, const key_space& ns) {
    ns.for_each_key([&](const key_info& key) { marked += key.reserved; });
  });
  if (wrong.empty() && (listed != reservations_.pages() || marked != listed))
    wrong = number(marked) + " pages are marked as reserved, but reservations list " + number(listed) + " of " +
            number(reservations_.pages());
  return wrong;
}

// -- registry -------------------------------------------------------------------------------------------------------

void registry_state::for_each_key(const namespace_id& id, const std::function<void(const key_info&)>& f) const {
  if (const auto* ns = namespaces_.find(id))
    ns->for_each_key(f);
}

void registry_state::for_each_slot(const namespace_id& id,
                                   const std::function<void(rank_number, slot_ref, page_use)>& f) const {
  const auto* ns = namespaces_.find(id);
  if (ns == nullptr)
    return;
  const auto& table = ns->table();
  for (entry_index i = 0; i < table.end(); ++i)
    for (const auto rank : ns->ranks())
      if (const auto page = writes_.page_of(table.page(i, rank), rank); page && page->where.generation != 0)
        f(rank, page->where, page->state == key_page::use::live ? page_use::live : page_use::reserved);
  ns->for_each_withheld([&](rank_number rank, slot_ref where) { f(rank, where, page_use::withheld); });
}

std::string registry_state::check_slots() const {
  std::string wrong;
  namespaces_.for_each([&](std::uint32_t, const key_space& ns) {
    std::set<std::pair<rank_number, slot_number>> seen;
    for_each_slot(ns.id(), [&](rank_number rank, slot_ref where, page_use) {
      if (!seen.emplace(rank, where.slot).second)
        wrong = "namespace \"" + ns.spec().name + "\": slot " + number(where.slot) + " of rank " + number(rank) +
                " is held twice";
    });
  });
  return wrong;
}

std::string registry_state::check_invariants() const {
  if (auto wrong = leases_.check(); !wrong.empty())
    return wrong;
  if (auto wrong = writes_.check(); !wrong.empty())
    return wrong;
  return check_slots();
}

} // namespace troupe
