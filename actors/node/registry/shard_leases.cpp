// Pages that a reader has found stay where they are for as long as it was promised: by a lease, or by time.

#include "actors/node/registry/shard_leases.hpp"

#include "actors/node/registry/answers.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

std::optional<lease_number> shard_leases::live_lease(const ticket& name, timestamp now) {
  const auto number = leases_.find(name);
  if (!number || leases_.at(*number).deadline > now)
    return number;
  expire_lease(*number);
  return std::nullopt;
}

void shard_leases::end_lease(lease_number number) {
  give_back_from(leases_.at(number), 0);
  leases_.close(number);
}

void shard_leases::give_back_from(lease& l, std::size_t first) {
  const auto entries = std::span(l.entries).subspan(first);
  if (l.counts)
    holds_.remove(l.name.owner, l.ns, entries);
  if (l.by_reader)
    holds_.remove(hold_counts::readers, l.ns, entries);
  auto& ns = namespaces_.at(l.ns);
  if (l.notified)
    for (const auto rank : ns.ranks())
      ns.outbox().notify_worker(rank,
                                prefetch_end{namespaces_.options().shard, l.name, static_cast<std::uint32_t>(first)});
  ns.give_back(entries);
  l.entries.resize(first);
}

void shard_leases::notify_workers(const ticket& name) {
  const auto number = leases_.find(name);
  if (!number)
    return;
  auto& l = leases_.at(*number);
  const auto brought = std::span<const entry_index>(l.entries).subspan(l.last_first);
  if (brought.empty())
    return;
  l.notified = true;
  auto& ns = namespaces_.at(l.ns);
  for (const auto rank : ns.ranks()) {
    prefetch_request notified{namespaces_.options().shard, name, l.last_first, {}};
    notified.pages.items.reserve(brought.size());
    // All entries are complete, so each rank has a page.
    for (const auto entry : brought)
      notified.pages.items.push_back({ns.table().entry(entry).key, ns.table().page(entry, rank).where()});
    ns.outbox().notify_worker(rank, std::move(notified));
  }
}

void shard_leases::expire_lease(lease_number number) {
  if (!leases_.at(number).doomed)
    ++expired_;
  end_lease(number);
}

std::optional<error> shard_leases::check_same_lease(std::uint32_t ns, const ticket& name, timestamp now) {
  const auto number = live_lease(name, now);
  if (!number || leases_.at(*number).ns == ns)
    return std::nullopt;
  return error{errc::invalid_argument, "the lease " + std::to_string(name.owner) + "/" + std::to_string(name.sequence) +
                                           " holds keys of another namespace; use one ticket per namespace"};
}

std::uint64_t shard_leases::keys_in_share(const key_space& ns, std::uint32_t share) const {
  std::uint64_t slots = 0;
  for (const auto rank : ns.ranks())
    if (const auto its = ns.info_of(rank).slots; its > 0 && (slots == 0 || its < slots))
      slots = its;
  // Keys are spread evenly over the shards, apart from chance. The keys that exist are a lower bound.
  const auto room =
      std::max(ns.keys(), (slots + namespaces_.options().shard_count - 1) / namespaces_.options().shard_count);
  return std::max<std::uint64_t>(1, (room * share + whole_share - 1) / whole_share);
}

std::optional<error> shard_leases::check_readers(std::uint32_t ns, std::uint32_t share, std::uint64_t held) const {
  if (share == 0 || share >= whole_share || held <= keys_in_share(namespaces_.at(ns), share))
    return std::nullopt;
  return error{errc::limit_exceeded, "read-only callers would hold more of the namespace's keys than "
                                     "http.limits.readers_share allows; release leases, or wait until they expire"};
}

std::optional<error> shard_leases::count_holds(lease& l, std::size_t first, const lease_bounds& bounds, timestamp now) {
  const auto added = std::span<const entry_index>(l.entries).subspan(first);
  const auto held = holds_.add(l.name.owner, l.ns, added);
  if (l.by_reader)
    holds_.add(hold_counts::readers, l.ns, added);
  std::optional<error> over;
  if (bounds.share > 0 && bounds.share < whole_share && held > keys_in_share(namespaces_.at(l.ns), bounds.share))
    over = error{errc::limit_exceeded, "the leases of this caller would hold more of the namespace's keys than "
                                       "http.limits.leased_share allows; release some first"};
  else if (l.by_reader)
    over = check_readers(l.ns, bounds.readers_share, holds_.readers_with(l.ns, {}, namespaces_.clock().now(now)));
  if (over)
    give_back_from(l, first);
  return over;
}

result<lease_number> shard_leases::open_lease(std::uint32_t ns, const ticket& name, timestamp deadline,
                                              const lease_bounds& bounds, std::size_t keys) {
  const auto& limits = namespaces_.options();
  if (leases_.size() >= limits.max_leases)
    return fail(errc::limit_exceeded, "all " + std::to_string(limits.max_leases) +
                                          " leases are in use; wait until some end, or raise registry.max_leases");
  auto most = limits.max_leases_per_owner;
  if (bounds.leases > 0)
    most = std::min(most, bounds.leases);
  if (leases_.count(name.owner) >= most)
    return fail(errc::limit_exceeded,
                "the client holds " + std::to_string(most) + " leases, which is the limit; release some");
  // The approximate size of a lease in the table, with its names and places.
  constexpr std::uint64_t bytes_per_lease = 256;
  if (limits.memory && !limits.memory->has_room_for_leases(bytes_per_lease + keys * sizeof(entry_index)))
    return fail(errc::limit_exceeded, "registry.memory_bytes is used up, so no new lease is possible; wait until "
                                      "other leases end, or raise it");
  const auto number = leases_.open(name, ns, deadline);
  leases_.at(number).counts = bounds != lease_bounds{};
  leases_.at(number).by_reader = bounds.readers_share > 0;
  return number;
}

result<std::uint32_t> shard_leases::take_lease(std::uint32_t ns, const ticket& name, duration lease_for,
                                               const lease_bounds& bounds, std::span<const entry_index> entries,
                                               timestamp now) {
  auto number = live_lease(name, now);
  if (!number && entries.empty())
    return 0U;
  const bool fresh = !number;
  if (fresh) {
    const auto opened = open_lease(ns, name, now + lease_for, bounds, entries.size());
    if (!opened)
      return tl::unexpected<error>(opened.error());
    number = *opened;
  }
  auto& l = leases_.at(*number);
  const auto before = l.entries.size();
  std::optional<error> over;
  if (!namespaces_.at(ns).lease(entries, l.entries, namespaces_.options().max_lease_keys))
    over = error{errc::limit_exceeded, "the lease would hold more than " +
                                           std::to_string(namespaces_.options().max_lease_keys) +
                                           " keys; use several leases"};
  else if (l.counts && l.entries.size() > before)
    over = count_holds(l, before, bounds, now);
  if (over) {
    if (fresh)
      leases_.close(*number);
    return tl::unexpected<error>(std::move(*over));
  }
  // Recorded for the release of a lookup over several shards. It must distinguish the keys that this use added from
  // those the lease held before, because another caller may have found the latter.
  ++l.uses;
  l.last_first = static_cast<std::uint32_t>(before);
  l.last_new.clear();
  if (l.entries.size() - before < entries.size())
    for (std::size_t i = 0, next = before; i < entries.size() && next < l.entries.size(); ++i)
      if (entries[i] == l.entries[next]) {
        l.last_new.push_back(static_cast<std::uint32_t>(i));
        ++next;
      }
  if (now + lease_for > l.deadline)
    leases_.set_deadline(*number, now + lease_for);
  return l.uses;
}

void shard_leases::trim_last_use(lease_number number, std::uint32_t keep) {
  auto& l = leases_.at(number);
  std::size_t kept = keep;
  if (!l.last_new.empty())
    kept = static_cast<std::size_t>(std::ranges::lower_bound(l.last_new, keep) - l.last_new.begin());
  kept += l.last_first;
  if (kept == 0)
    end_lease(number);
  else if (kept < l.entries.size())
    give_back_from(l, kept);
}

std::optional<error> shard_leases::check_lookup(std::uint32_t ns, const ticket& lease, duration lease_for,
                                                std::span<const key_digest> keys, timestamp now) {
  auto bad = shard_namespaces::check_ticket(lease);
  if (!bad)
    bad = shard_namespaces::check_duration(lease_for, namespaces_.options().max_lease, "lease_for");
  if (!bad)
    bad = namespaces_.check_keys(keys);
  if (!bad)
    bad = check_same_lease(ns, lease, now);
  return bad;
}

result<match_reply> shard_leases::match(const match_request& request, timestamp now) {
  const auto ns = namespaces_.number_of(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  if (auto bad = check_lookup(*ns, request.lease, request.lease_for, request.keys.items, now))
    return namespaces_.refuse(std::move(*bad));
  used_.clear();
  match_reply reply;
  auto missing = no_entry;
  if (request.each) {
    reply.found.items.reserve(request.keys.size());
    missing = namespaces_.at(*ns).append_complete(request.keys.items, used_, reply.found.items);
  } else
    missing = namespaces_.at(*ns).append_leading_complete(request.keys.items, used_);
  // Lookups of other nodes are no requests of this one, and these explain them.
  auto* const history = request.by_peer ? nullptr : namespaces_.history();
  lookup_part part;
  // Before the lease, which ends the wait for them. Only these lookups are explained or counted by tier.
  const auto fetched = history != nullptr || request.report_on_disk
                           ? namespaces_.at(*ns).count_awaited(used_, namespaces_.clock().now(now))
                           : 0U;
  if (history != nullptr) {
    const auto& marks = reply.found.items;
    const auto at = request.each ? static_cast<std::size_t>(std::ranges::find(marks, 0) - marks.begin()) : used_.size();
    part = part_of(namespaces_.at(*ns), request, at, missing, now);
    part.fetched = fetched;
  }
  const auto uses = take_lease(*ns, request.lease, request.lease_for, request.bounds, used_, now);
  if (!uses) {
    part.refused = uses.error().code;
    if (history != nullptr)
      history->record(part);
    return namespaces_.refuse(uses.error());
  }
  namespaces_.at(*ns).count_lookup(request.keys.size(), used_.size());
  // A lookup of each key is one of several, for groups of layers, so it is no request of a recorded trace.
  if (!request.each) {
    count_match(*ns, request, now);
    if (namespaces_.options().recorder)
      record(namespaces_.at(*ns), request, now);
  }
  reply.matched = static_cast<std::uint32_t>(used_.size());
  reply.uses = *uses;
  part.tiers_known = used_.empty();
  if (request.report_on_disk) {
    reply.on_disk = on_disk(*ns, used_);
    part.tiers_known = reply.on_disk.size() == used_.size();
    part.on_disk = static_cast<std::uint32_t>(std::ranges::count(reply.on_disk.items, std::uint8_t{1}));
    if (part.tiers_known)
      namespaces_.at(*ns).count_tiers(used_.size(), part.on_disk, fetched);
  }
  if (history != nullptr)
    history->record(part);
  return reply;
}

lookup_part shard_leases::part_of(const key_space& ns, const match_request& request, std::size_t at,
                                  entry_index missing, timestamp now) const {
  lookup_part out{.at = now, .name = request.lease, .ns = request.ns, .shard = namespaces_.options().shard};
  out.request = request_name(request.request);
  out.asked = static_cast<std::uint32_t>(request.keys.size());
  out.found = static_cast<std::uint32_t>(used_.size());
  out.kept = out.found;
  out.each = request.each;
  if (!request.keys.empty())
    out.first = request.keys[0];
  if (at >= request.keys.size())
    return out;
  out.missing = request.keys[at];
  out.state = missing_state::absent;
  if (missing == no_entry)
    return out;
  const auto& entry = ns.table().entry(missing);
  if (entry.live == 0) {
    out.state = entry.reserved > 0 ? missing_state::being_saved : missing_state::absent;
    return out;
  }
  out.state = missing_state::incomplete;
  out.ranks_with_page = entry.live;
  for (const auto rank : ns.ranks())
    if (const auto cell = ns.table().page(missing, rank); !cell.live()) {
      out.rank = rank;
      out.rank_being_written = cell.reserved();
      break;
    }
  return out;
}

void shard_leases::count_match(std::uint32_t number, const match_request& request, timestamp now) {
  auto& ns = namespaces_.at(number);
  ns.touch(used_, request.keys.size() - used_.size(), 1, namespaces_.clock().now(now), request.by_peer);
  if (request.by_peer)
    ns.missed_by_peer(std::span(request.keys.items).subspan(used_.size()));
  // Bounded callers read slabs themselves, or nothing at all, so io workers need no notice.
  if (namespaces_.options().tells_workers && request.bounds == lease_bounds{})
    notify_workers(request.lease);
}

void shard_leases::record(const key_space& ns, const match_request& request, timestamp now) {
  const auto& table = ns.table();
  std::vector<entry_index> entries(request.keys.size());
  table.find(request.keys.items, entries);
  // An entry with pages, reservations or leases knows its parent. Unknown keys are left out by naming themselves.
  auto parents = request.keys.items;
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries[i] != no_entry && !table.entry(entries[i]).ghost())
      parents[i] = table.parent(entries[i]);
  namespaces_.options().recorder->looked_up(namespaces_.options().shard, request.lease, ns.spec().geometry.block_tokens,
                                            now, request.keys.items, parents);
}

packed<std::uint8_t> shard_leases::on_disk(std::uint32_t number, std::span<const entry_index> entries) const {
  packed<std::uint8_t> out;
  const auto& ns = namespaces_.at(number);
  if (!namespaces_.options().residence || entries.empty())
    return out;
  std::vector<std::uint8_t> marks(entries.size(), 0);
  for (const auto rank : ns.ranks()) {
    const auto resident = namespaces_.options().residence->find(ns.id(), rank);
    if (!resident)
      return out;
    // All entries are complete, so each rank has a page.
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (!resident->contains(ns.table().page(entries[i], rank).where().slot))
        marks[i] = 1;
  }
  out.items = std::move(marks);
  return out;
}

packed<std::uint8_t> shard_leases::in_slab(const key_space& ns, rank_number rank,
                                           std::span<const location> pages) const {
  packed<std::uint8_t> out;
  const auto resident =
      namespaces_.options().residence ? namespaces_.options().residence->find(ns.id(), rank) : nullptr;
  if (!resident)
    return out;
  out.items.reserve(pages.size());
  for (const auto& x : pages)
    out.items.push_back(
        x.code() == errc::ok && ns.has_slot(rank, x.where.slot) && resident->is_written(x.where.slot) ? 1 : 0);
  return out;
}

packed<location> shard_leases::find_pages(const key_space& ns, rank_number rank, std::span<const key_digest> keys,
                                          bool complete_only) {
  found_.resize(keys.size());
  ns.table().find(keys, found_);
  packed<location> locations;
  locations.items.resize(keys.size());
  used_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto& out = locations[i];
    out.status = static_cast<std::uint32_t>(errc::not_found);
    if (found_[i] == no_entry || (complete_only && !ns.complete(found_[i])))
      continue;
    const auto cell = ns.table().page(found_[i], rank);
    if (!cell.live())
      continue;
    out = {cell.where(), static_cast<std::uint32_t>(errc::ok)};
    used_.push_back(found_[i]);
  }
  return locations;
}

result<locate_reply> shard_leases::locate(const locate_request& request, timestamp now) {
  const auto ns = namespaces_.find_rank(request.ns, request.rank);
  if (!ns)
    return namespaces_.refuse(ns.error());
  if (auto bad = check_lookup(ns->number, request.lease, request.lease_for, request.keys.items, now))
    return namespaces_.refuse(std::move(*bad));
  locate_reply reply{find_pages(ns->keys, request.rank, request.keys.items, false), {}};
  const auto uses = take_lease(ns->number, request.lease, request.lease_for, request.bounds, used_, now);
  if (!uses)
    return namespaces_.refuse(uses.error());
  ns->keys.touch(used_, request.keys.size() - used_.size(), 1, namespaces_.clock().now(now));
  if (request.report_in_slab)
    reply.in_slab = in_slab(ns->keys, request.rank, reply.locations.items);
  return reply;
}

void shard_leases::evict_first(lease& l, std::span<const key_digest> keys) {
  // Only keys whose page is the one that the other node read. During a lease its keys stay, but a page may be found
  // corrupt and be saved again. That page is newer, and the newest copy must stay.
  auto& ns = namespaces_.at(l.ns);
  found_.resize(keys.size());
  ns.table().find(keys, found_);
  for (const auto entry : l.entries)
    ns.first_in_request(entry);
  used_.clear();
  for (const auto entry : found_) {
    if (entry == no_entry)
      continue;
    const auto& e = ns.table().entry(entry);
    if (e.marked && e.live > 0 && !e.made_under_lease)
      used_.push_back(entry);
  }
  ns.end_request(l.entries);
  ns.evict_first(used_);
}

void shard_leases::retain(lease_number number, std::span<const key_digest> keys, timestamp now) {
  auto& l = leases_.at(number);
  auto& ns = namespaces_.at(l.ns);
  if (std::exchange(l.notified, false)) // workers know keys by their positions, which are about to change
    for (const auto rank : ns.ranks())
      ns.outbox().notify_worker(rank, prefetch_end{namespaces_.options().shard, l.name, 0});
  found_.resize(keys.size());
  ns.table().find(keys, found_);
  // Entries of the lease are marked, those that stay are unmarked in their order, and the marked rest goes.
  for (const auto entry : l.entries)
    ns.first_in_request(entry);
  used_.clear();
  for (const auto entry : found_)
    if (entry != no_entry && ns.table().entry(entry).marked && ns.complete(entry)) {
      ns.end_request({&entry, 1});
      used_.push_back(entry);
    }
  const auto kept = used_.size();
  for (const auto entry : l.entries)
    if (ns.table().entry(entry).marked)
      used_.push_back(entry);
  ns.end_request(l.entries);
  l.entries.assign(used_.begin(), used_.end());
  l.last_first = 0;
  l.last_new.clear();
  if (kept == 0)
    return end_lease(number);
  if (kept < l.entries.size())
    give_back_from(l, kept);
  used_.resize(kept);
  ns.touch(used_, 0, 1, namespaces_.clock().now(now));
  if (namespaces_.options().tells_workers && !l.counts)
    notify_workers(l.name);
}

result<void> shard_leases::release(const release_request& request, timestamp now) {
  const auto ns = namespaces_.number_of(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  auto bad = shard_namespaces::check_ticket(request.lease);
  if (!bad)
    bad = check_same_lease(*ns, request.lease, now);
  for (const auto* keys : {&request.kept_there, &request.retained})
    if (!bad && !keys->empty())
      bad = namespaces_.check_keys(keys->items);
  if (bad)
    return namespaces_.refuse(std::move(*bad));
  const auto number = live_lease(request.lease, now);
  if (!number && request.must_exist && !leases_.recently_ended(request.lease))
    return fail(errc::not_found, "no such lease: it has expired, never held a key, or belongs to another caller");
  if (!number)
    return {};
  auto& l = leases_.at(*number);
  if (!request.retained.empty()) {
    retain(*number, request.retained.items, now);
    return {};
  }
  if (request.uses != 0) {
    if (request.uses != l.uses)
      return {};
    if (auto* const history = namespaces_.history())
      history->trim(request.lease, request.keep);
    trim_last_use(*number, request.keep);
    return {};
  }
  if (request.keep == 0 && !request.kept_there.empty())
    evict_first(l, request.kept_there.items);
  if (request.keep == 0)
    end_lease(*number);
  else if (request.keep < l.entries.size())
    give_back_from(l, request.keep);
  return {};
}

result<void> shard_leases::renew(const renew_request& request, timestamp now) {
  const auto ns = namespaces_.number_of(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  auto bad = shard_namespaces::check_ticket(request.lease);
  if (!bad)
    bad = shard_namespaces::check_duration(request.lease_for, namespaces_.options().max_lease, "lease_for");
  if (!bad)
    bad = check_same_lease(*ns, request.lease, now);
  if (bad)
    return namespaces_.refuse(std::move(*bad));
  const auto number = live_lease(request.lease, now);
  if (!number)
    return fail(errc::not_found, "no such lease: it has expired, was released, or never held a key");
  if (now + request.lease_for > leases_.at(*number).deadline)
    leases_.set_deadline(*number, now + request.lease_for);
  return {};
}

bool shard_leases::end_due(timestamp now, std::size_t& left) {
  while (left > 0) {
    const auto number = leases_.due(now);
    if (!number)
      break;
    // A long lease ends in several calls, from its end. It counts as expired from the first call on.
    auto& l = leases_.at(*number);
    if (l.entries.size() > left) {
      give_back_from(l, l.entries.size() - left);
      left = 0;
      return false;
    }
    left -= std::max<std::size_t>(1, l.entries.size());
    expire_lease(*number);
  }
  return true;
}

// -- slot clients ---------------------------------------------------------------------------------------------------

result<result_codes> shard_leases::exists(const exists_request& request) {
  const auto found = namespaces_.find_keys(request.ns, request.rank, request.keys.items, found_);
  if (!found)
    return namespaces_.refuse(found.error());
  const auto& ns = found->keys;
  result_codes reply;
  reply.results.items.reserve(found_.size());
  std::uint64_t there_are = 0;
  for (const auto entry : found_) {
    const bool there = entry != no_entry &&
                       (request.rank == all_ranks ? ns.complete(entry) : ns.table().page(entry, request.rank).live());
    reply.results.items.push_back(byte_of(there ? errc::ok : errc::not_found));
    there_are += there ? 1 : 0;
  }
  found->keys.count_lookup(found_.size(), there_are);
  return reply;
}

result<locate_reply> shard_leases::protect(const protect_request& request, timestamp now) {
  const auto ns = namespaces_.find_rank(request.ns, request.rank);
  if (!ns)
    return namespaces_.refuse(ns.error());
  auto bad = shard_namespaces::check_duration(request.protect_for, namespaces_.options().max_protection, "protect_for");
  if (!bad)
    bad = namespaces_.check_keys(request.keys.items);
  if (bad)
    return namespaces_.refuse(std::move(*bad));
  locate_reply reply{find_pages(ns->keys, request.rank, request.keys.items, request.complete_only)};
  const auto until = namespaces_.clock().after(now, request.protect_for);
  if (request.readers_share > 0 && request.readers_share < whole_share) {
    const auto held = holds_.readers_with(ns->number, used_, namespaces_.clock().now(now));
    if (auto over = check_readers(ns->number, request.readers_share, held))
      return namespaces_.refuse(std::move(*over));
    holds_.protect(ns->number, used_, until);
  }
  // No refusal is possible from here on, so everything that is answered is also promised.
  ns->keys.touch(used_, request.keys.size() - used_.size(), 0, namespaces_.clock().now(now));
  for (const auto entry : used_)
    ns->keys.protect(entry, until);
  return reply;
}

} // namespace troupe
