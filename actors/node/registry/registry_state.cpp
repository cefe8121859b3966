#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

namespace {

std::optional<error> check_ticket(const ticket& x) {
  if (x.owner != 0)
    return std::nullopt;
  return error{errc::invalid_argument, "the ticket's owner is 0, which stands for nobody; use the client's own id"};
}

} // namespace

tl::unexpected<error> registry_state::refuse(error why) {
  ++refused_;
  return tl::unexpected<error>(std::move(why));
}

// -- checks -----------------------------------------------------------------------------------------------------------

std::optional<error> registry_state::check_duration(duration x, duration most, std::string_view what) {
  if (x > duration::zero() && x <= most)
    return std::nullopt;
  return error{errc::invalid_argument, std::string(what) + " must be more than 0 and at most " +
                                           std::to_string(most.count()) + " ns, and is " + std::to_string(x.count())};
}

const key_space* registry_state::find_space(const namespace_id& id) const {
  const auto found = space_numbers_.find(id);
  return found == space_numbers_.end() ? nullptr : spaces_[found->second].get();
}

result<std::uint32_t> registry_state::space_number(const namespace_id& id) const {
  const auto found = space_numbers_.find(id);
  if (found == space_numbers_.end())
    return fail(errc::unknown_namespace, "no namespace " + to_string(id) + " in this registry; add it first");
  return found->second;
}

result<registry_state::checked_space> registry_state::find_rank(const namespace_id& id, rank_number rank) const {
  const auto number = space_number(id);
  if (!number)
    return tl::unexpected<error>(number.error());
  auto& space = *spaces_[*number];
  if (auto bad = check_rank(space, rank))
    return tl::unexpected<error>(std::move(*bad));
  return checked_space{*number, space};
}

std::optional<error> registry_state::check_rank(const key_space& space, rank_number rank) const {
  if (space.has_rank(rank))
    return std::nullopt;
  const auto prefix = "rank " + std::to_string(rank) + ": namespace \"" + space.spec().name + "\" has ";
  if (space.options().automatic)
    return error{errc::out_of_range, prefix + std::to_string(space.ranks().size()) +
                                         " ranks, and this one is not among them; register it first"};
  return error{errc::out_of_range, prefix + "ranks 0 to " + std::to_string(space.spec().world_size - 1)};
}

std::optional<error> registry_state::check_batch(std::size_t n) const {
  if (n <= options_.max_batch)
    return std::nullopt;
  return error{errc::limit_exceeded, "a batch of " + std::to_string(n) + " keys; at most " +
                                         std::to_string(options_.max_batch) + " are allowed, send several"};
}

std::optional<error> registry_state::check_keys(std::span<const key_digest> keys) const {
  if (auto bad = check_batch(keys.size()))
    return bad;
  for (const auto& key : keys)
    if (key.is_null())
      return error{errc::invalid_argument, "the null key stands for none and cannot be stored or looked up"};
  return std::nullopt;
}

std::optional<error> registry_state::check_pages(std::span<const page_ref> pages) const {
  if (auto bad = check_batch(pages.size()))
    return bad;
  for (const auto& page : pages)
    if (page.key.is_null())
      return error{errc::invalid_argument, "the null key stands for none and has no page"};
  return std::nullopt;
}

// -- leases ---------------------------------------------------------------------------------------------------------

std::optional<lease_number> registry_state::live_lease(const ticket& name, timestamp now) {
  const auto number = leases_.find(name);
  if (!number || leases_.at(*number).deadline > now)
    return number;
  expire_lease(*number);
  return std::nullopt;
}

void registry_state::end_lease(lease_number number) {
  give_back_from(leases_.at(number), 0);
  leases_.close(number);
}

void registry_state::give_back_from(lease& l, std::size_t first) {
  const auto entries = std::span(l.entries).subspan(first);
  if (l.counts)
    holds_.remove(l.name.owner, l.space, entries);
  if (l.by_reader)
    holds_.remove(hold_counts::readers, l.space, entries);
  spaces_[l.space]->give_back(entries);
  l.entries.resize(first);
}

void registry_state::expire_lease(lease_number number) {
  if (!leases_.at(number).doomed)
    ++expired_leases_;
  end_lease(number);
}

std::optional<error> registry_state::check_same_lease(std::uint32_t space, const ticket& name, timestamp now) {
  const auto number = live_lease(name, now);
  if (!number || leases_.at(*number).space == space)
    return std::nullopt;
  return error{errc::invalid_argument, "the lease " + std::to_string(name.owner) + "/" + std::to_string(name.sequence) +
                                           " holds keys of another namespace; use a ticket for each"};
}

std::uint64_t registry_state::keys_in_share(const key_space& space, std::uint32_t share) const {
  std::uint64_t slots = 0;
  for (const auto rank : space.ranks())
    if (const auto its = space.info_of(rank).slots; its > 0 && (slots == 0 || its < slots))
      slots = its;
  // Keys fall on the shards evenly, but for chance; what there is already counts as well.
  const auto room = std::max(space.keys(), (slots + options_.shard_count - 1) / options_.shard_count);
  return std::max<std::uint64_t>(1, (room * share + whole_share - 1) / whole_share);
}

std::optional<error> registry_state::check_readers(std::uint32_t space, std::uint32_t share, std::uint64_t held) const {
  if (share == 0 || share >= whole_share || held <= keys_in_share(*spaces_[space], share))
    return std::nullopt;
  return error{errc::limit_exceeded, "callers that may only read would hold more of the namespace's keys than "
                                     "http.limits.readers_share allows; release leases, or wait until they run out"};
}

std::optional<error> registry_state::count_holds(lease& l, std::size_t first, const lease_bounds& bounds,
                                                 timestamp now) {
  const auto added = std::span<const entry_index>(l.entries).subspan(first);
  const auto held = holds_.add(l.name.owner, l.space, added);
  if (l.by_reader)
    holds_.add(hold_counts::readers, l.space, added);
  std::optional<error> over;
  if (bounds.share > 0 && bounds.share < whole_share && held > keys_in_share(*spaces_[l.space], bounds.share))
    over = error{errc::limit_exceeded, "the leases of this caller would hold more of the namespace's keys than "
                                       "http.limits.leased_share allows; release some first"};
  else if (l.by_reader)
    over = check_readers(l.space, bounds.readers_share, holds_.readers_with(l.space, {}, clock_.now(now)));
  if (over)
    give_back_from(l, first);
  return over;
}

result<std::uint32_t> registry_state::take_lease(std::uint32_t space, const ticket& name, duration lease_for,
                                                 const lease_bounds& bounds, std::span<const entry_index> entries,
                                                 timestamp now) {
  auto number = live_lease(name, now);
  if (!number && entries.empty())
    return 0U;
  const bool fresh = !number;
  if (fresh) {
    if (leases_.size() >= options_.max_leases)
      return fail(errc::limit_exceeded, "all of " + std::to_string(options_.max_leases) + " leases are in use");
    auto most = options_.max_leases_per_owner;
    if (bounds.leases > 0)
      most = std::min(most, bounds.leases);
    if (leases_.count(name.owner) >= most)
      return fail(errc::limit_exceeded,
                  "the client holds " + std::to_string(most) + " leases, the most that are allowed; release some");
    constexpr std::uint64_t bytes_per_lease = 256;
    const auto bytes = bytes_per_lease + entries.size() * sizeof(entry_index);
    if (options_.memory && !options_.memory->has_room_for_leases(bytes))
      return fail(errc::limit_exceeded, "registry.memory_bytes are used up, and there are no new leases: wait until "
                                        "others end, or raise it");
    number = leases_.open(name, space, now + lease_for);
    leases_.at(*number).counts = bounds != lease_bounds{};
    leases_.at(*number).by_reader = bounds.readers_share > 0;
  }
  auto& l = leases_.at(*number);
  const auto before = l.entries.size();
  std::optional<error> over;
  if (!spaces_[space]->lease(entries, l.entries, options_.max_lease_keys))
    over = error{errc::limit_exceeded, "the lease would hold more than " + std::to_string(options_.max_lease_keys) +
                                           " keys; take several leases"};
  else if (l.counts && l.entries.size() > before)
    over = count_holds(l, before, bounds, now);
  if (over) {
    if (fresh)
      leases_.close(*number);
    return tl::unexpected<error>(std::move(*over));
  }
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

void registry_state::trim_last_use(lease_number number, std::uint32_t keep) {
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

std::optional<error> registry_state::check_lookup(std::uint32_t space, const ticket& lease, duration lease_for,
                                                  std::span<const key_digest> keys, timestamp now) {
  auto bad = check_ticket(lease);
  if (!bad)
    bad = check_duration(lease_for, options_.max_lease, "lease_for");
  if (!bad)
    bad = check_keys(keys);
  if (!bad)
    bad = check_same_lease(space, lease, now);
  return bad;
}

result<match_reply> registry_state::match(const match_request& request, timestamp now) {
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  if (auto bad = check_lookup(*space, request.lease, request.lease_for, request.keys.items, now))
    return refuse(std::move(*bad));
  used_.clear();
  spaces_[*space]->append_leading_complete(request.keys.items, used_);
  const auto uses = take_lease(*space, request.lease, request.lease_for, request.bounds, used_, now);
  if (!uses)
    return refuse(uses.error());
  spaces_[*space]->touch(used_);
  return match_reply{static_cast<std::uint32_t>(used_.size()), *uses};
}

packed<location> registry_state::find_pages(const key_space& space, rank_number rank, std::span<const key_digest> keys,
                                            bool complete_only) {
  found_.resize(keys.size());
  space.table().find(keys, found_);
  packed<location> locations;
  locations.items.resize(keys.size());
  used_.clear();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    auto& out = locations[i];
    out.status = static_cast<std::uint32_t>(errc::not_found);
    if (found_[i] == no_entry || (complete_only && !space.complete(found_[i])))
      continue;
    const auto cell = space.table().page(found_[i], rank);
    if (!cell.live())
      continue;
    out = {cell.where(), static_cast<std::uint32_t>(errc::ok)};
    used_.push_back(found_[i]);
  }
  return locations;
}

result<locate_reply> registry_state::locate(const locate_request& request, timestamp now) {
  const auto space = find_rank(request.space, request.rank);
  if (!space)
    return refuse(space.error());
  if (auto bad = check_lookup(space->number, request.lease, request.lease_for, request.keys.items, now))
    return refuse(std::move(*bad));
  locate_reply reply{find_pages(space->keys, request.rank, request.keys.items, false)};
  const auto uses = take_lease(space->number, request.lease, request.lease_for, request.bounds, used_, now);
  if (!uses)
    return refuse(uses.error());
  space->keys.touch(used_);
  return reply;
}

result<void> registry_state::release(const release_request& request, timestamp now) {
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  auto bad = check_ticket(request.lease);
  if (!bad)
    bad = check_same_lease(*space, request.lease, now);
  if (bad)
    return refuse(std::move(*bad));
  const auto number = live_lease(request.lease, now);
  if (!number && request.must_exist && !leases_.recently_ended(request.lease))
    return fail(errc::not_found, "no such lease: it ran out, never held a key, or is another caller's");
  if (!number)
    return {};
  auto& l = leases_.at(*number);
  if (request.uses != 0) {
    if (request.uses == l.uses)
      trim_last_use(*number, request.keep);
    return {};
  }
  if (request.keep == 0)
    end_lease(*number);
  else if (request.keep < l.entries.size())
    give_back_from(l, request.keep);
  return {};
}

result<void> registry_state::renew(const renew_request& request, timestamp now) {
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  auto bad = check_ticket(request.lease);
  if (!bad)
    bad = check_duration(request.lease_for, options_.max_lease, "lease_for");
  if (!bad)
    bad = check_same_lease(*space, request.lease, now);
  if (bad)
    return refuse(std::move(*bad));
  const auto number = live_lease(request.lease, now);
  if (!number)
    return fail(errc::not_found, "the lease is gone: it expired, was released, or never held a key");
  if (now + request.lease_for > leases_.at(*number).deadline)
    leases_.set_deadline(*number, now + request.lease_for);
  return {};
}

// -- eviction, children, time ---------------------------------------------------------------------------------------

result<void> registry_state::count_children(const children_request& request, timestamp) {
  if (request.changes.size() > child_changes_max)
    return refuse({errc::limit_exceeded, std::to_string(request.changes.size()) +
                                             " changes of children in one request; at most " +
                                             std::to_string(child_changes_max)});
  if (removals_.contains(request.space))
    return {};
  const auto space = space_number(request.space);
  if (!space)
    return refuse(space.error());
  bool all = true;
  for (const auto& change : request.changes)
    all = !change.parent.is_null() && spaces_[*space]->add_children(change.parent, change.delta) && all;
  if (!all)
    return refuse({errc::invalid_argument, "a change names no parent, or counts more children than there can be"});
  return {};
}

result<evict_reply> registry_state::evict(const evict_request& request, timestamp now) {
  const auto space = find_rank(request.space, request.rank);
  if (!space)
    return refuse(space.error());
  const auto looks = std::min<std::uint64_t>(std::uint64_t{4} * request.wanted + 64, options_.max_eviction_looks);
  return space->keys.evict(request.rank, request.wanted, static_cast<std::uint32_t>(looks), clock_.now(now));
}

bool registry_state::owner_died(owner_id owner, timestamp now) {
  leases_.doom(owner);
  reservations_.doom(owner);
  return tick(now);
}

void registry_state::account() {
  if (!options_.memory)
    return;
  tables_.set(leases_.resident_bytes() + reservations_.resident_bytes() + anonymous_.resident_bytes());
  for (const auto& space : spaces_)
    if (space)
      space->account();
}

bool registry_state::tick(timestamp now) {
  account();
  std::size_t left = options_.tick_work;
  while (left > 0) {
    const auto number = leases_.due(now);
    if (!number)
      break;
    // A long lease ends in several ticks, from its end. Meanwhile it counts as expired already.
    auto& l = leases_.at(*number);
    if (l.entries.size() > left) {
      give_back_from(l, l.entries.size() - left);
      return true;
    }
    left -= std::max<std::size_t>(1, l.entries.size());
    expire_lease(*number);
  }
  while (left > 0) {
    const auto number = reservations_.due(now);
    if (!number)
      break;
    left -= std::min<std::size_t>(left, std::max<std::size_t>(1, reservations_.at(*number).pages.size()));
    expire_reservation(*number);
  }
  for (; left > 0 && anonymous_.due(now); --left)
    expire_anonymous(*anonymous_.due(now));
  bool more = leases_.due(now) || reservations_.due(now) || anonymous_.due(now);
  const auto coarse = clock_.now(now);
  for (const auto& space : spaces_)
    if (space) {
      left -= space->release_due(coarse, left);
      more = more || space->next_release().value_or(coarse_never) <= coarse;
    }
  return more;
}

std::optional<timestamp> registry_state::next_deadline() const {
  std::optional<timestamp> first;
  const auto consider = [&](std::optional<timestamp> at) {
    if (at && (!first || *at < *first))
      first = at;
  };
  consider(leases_.next_deadline());
  consider(reservations_.next_deadline());
  consider(anonymous_.next_deadline());
  for (const auto& space : spaces_)
    if (const auto next = space ? space->next_release() : std::nullopt)
      consider(clock_.begin(*next));
  return first;
}

registry_outbox registry_state::take_outbox() {
  auto out = std::exchange(left_over_, {});
  for (const auto& space : spaces_)
    if (space)
      space->outbox().drain_into(out);
  changes_ += out.changes.size();
  out.sequence = changes_;
  return out;
}

registry_stats registry_state::stats() const {
  registry_stats s;
  s.evicted_keys = evicted_keys_;
  for (const auto& space : spaces_) {
    if (!space)
      continue;
    s.keys += space->keys();
    s.complete_keys += space->complete_keys();
    s.evicted_keys += space->evicted_keys();
    s.withheld_slots += space->withheld_slots();
    s.resident_bytes += space->resident_bytes();
  }
  s.leases = leases_.size();
  s.reservations = reservations_.pages() + anonymous_.pages();
  s.invalidated_pages = invalidated_pages_;
  s.reclaimed_pages = reclaimed_pages_;
  s.erased_pages = erased_pages_;
  s.expired_leases = expired_leases_;
  s.expired_reservations = expired_reservations_;
  s.refused = refused_;
  s.resident_bytes +=
      leases_.resident_bytes() + holds_.resident_bytes() + reservations_.resident_bytes() + anonymous_.resident_bytes();
  return s;
}

std::uint64_t registry_state::keys() const {
  std::uint64_t n = 0;
  for (const auto& space : spaces_)
    n += space ? space->keys() : 0;
  return n;
}

std::string registry_state::space_name(const namespace_id& id) const {
  const auto* space = find_space(id);
  return space != nullptr ? space->spec().name : std::string();
}

bool registry_state::is_complete(const namespace_id& id, const key_digest& key) const {
  const auto* space = find_space(id);
  if (space == nullptr)
    return false;
  const auto entry = space->table().find(key);
  return entry != no_entry && space->complete(entry);
}

} // namespace troupe
