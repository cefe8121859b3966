// Requests for slots, begin and finish, and the end of reservations without a page. The code that publishes pages, or
// returns them by name, is in shard_writes_pages.cpp.

#include "actors/node/registry/shard_writes.hpp"

#include "actors/node/registry/answers.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

// -- ends of reservations -------------------------------------------------------------------------------------------

std::optional<reservation_number> shard_writes::live_reservation(const reservation_name& name, timestamp now) {
  const auto number = reservations_.find(name);
  if (!number || reservations_.at(*number).deadline > now)
    return number;
  expire_reservation(*number);
  return std::nullopt;
}

void shard_writes::end_page(reserved_page_number number, errc code, coarse_time until) {
  const auto page = reservations_.page(number);
  auto& r = reservations_.at(page.by);
  if (!r.answers.empty())
    r.answers[page.answer] = answered(code);
  reservations_.remove_page(number);
  auto& ns = namespaces_.at(r.name.ns);
  ns.note(ns.table().entry(page.entry).key, code == errc::full ? key_event::save_without_slot : key_event::save_ended,
          r.name.rank);
  ns.unreserve(page.entry, r.name.rank, page.where, until);
}

void shard_writes::end_shared(reserved_page_number number, coarse_time until) {
  const auto by = reservations_.page(number).by;
  end_page(number, errc::expired, until);
  close_if_ended(by);
}

void shard_writes::expire_shared(reserved_page_number number) {
  expired_ += reservations_.of_page(number).doomed ? 0 : 1;
  end_shared(number);
}

void shard_writes::close_if_ended(reservation_number number) {
  const auto& r = reservations_.at(number);
  if (r.open_pages > 0)
    return;
  if (r.state == reservation::phase::awaiting_slots)
    reservations_.drop(number);
  else
    reservations_.close(number);
}

void shard_writes::end_reservation(reservation_number number) {
  for (std::size_t i = 0; i < reservations_.at(number).pages.size(); ++i)
    if (const auto page = reservations_.at(number).pages[i]; page != no_reserved_page)
      end_page(page, errc::expired);
  close_if_ended(number);
}

void shard_writes::expire_reservation(reservation_number number) {
  const auto& r = reservations_.at(number);
  if (!r.doomed)
    expired_ += r.open_pages;
  end_reservation(number);
}

void shard_writes::end_rank(std::uint32_t ns, rank_number rank, timestamp now) {
  std::vector<reservation_number> ended;
  reservations_.for_each([&](reservation_number number, const reservation& r) {
    if (r.name.ns == ns && r.name.rank == rank)
      ended.push_back(number);
  });
  for (const auto number : ended) {
    const auto pages = reservations_.at(number).pages;
    for (const auto page : pages)
      if (page != no_reserved_page) {
        const auto& r = reservations_.at(number);
        const auto deadline = r.shareable() ? reservations_.page(page).deadline : r.deadline;
        end_page(page, errc::expired, namespaces_.clock().after(now, std::max(deadline - now, duration::zero())));
      }
    close_if_ended(number);
  }
}

void shard_writes::end_due(timestamp now, std::size_t& left) {
  while (left > 0) {
    const auto number = reservations_.due(now);
    if (!number)
      break;
    left -= std::min<std::size_t>(left, std::max<std::size_t>(1, reservations_.at(*number).pages.size()));
    expire_reservation(*number);
  }
  for (; left > 0; --left) {
    const auto page = reservations_.page_due(now);
    if (!page)
      break;
    expire_shared(*page);
  }
}

void shard_writes::note_refused(const key_space& ns, std::span<const key_digest> keys, key_event what,
                                rank_number rank) const {
  if (namespaces_.history() == nullptr)
    return;
  lookup_history::batch notes(namespaces_.history(), ns.id(), rank);
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (const auto entry = ns.table().refresh(found_[i], keys[i]);
        entry == no_entry || !ns.table().page(entry, rank).live())
      notes.add(keys[i], what);
}

// -- checks ---------------------------------------------------------------------------------------------------------

std::optional<error> shard_writes::check_new_keys(std::span<const key_digest> keys,
                                                  std::span<const key_digest> parents) const {
  if (auto bad = namespaces_.check_keys(keys))
    return bad;
  if (!parents.empty() && parents.size() != keys.size())
    return error{errc::invalid_argument, std::to_string(parents.size()) + " parents for " +
                                             std::to_string(keys.size()) + " keys; give one per key, or none"};
  const auto& how = namespaces_.options();
  if (how.shard_count == 1)
    return std::nullopt;
  for (const auto& key : keys)
    if (const auto owner = shard_of(key, how.shard_count); owner != how.shard)
      return error{errc::invalid_argument, "key " + to_string(key) + " belongs to shard " + std::to_string(owner) +
                                               " of " + std::to_string(how.shard_count) + ", and this is shard " +
                                               std::to_string(how.shard)};
  return std::nullopt;
}

std::optional<error> shard_writes::check_reserve(const key_space& ns, const reserve_request& request) const {
  if (auto bad = namespaces_.check_rank(ns, request.rank))
    return bad;
  if (auto bad = shard_namespaces::check_ticket(request.ticket))
    return bad;
  if (auto bad =
          shard_namespaces::check_duration(request.expires_in, namespaces_.options().max_reservation, "expires_in"))
    return bad;
  if (auto bad = check_new_keys(request.keys.items, request.parents.items))
    return bad;
  for (std::size_t i = 0; i < request.parents.size(); ++i)
    if (request.parents[i] == request.keys[i])
      return error{errc::invalid_argument, "key " + to_string(request.keys[i]) + " is given as its own parent"};
  return std::nullopt;
}

std::optional<error> shard_writes::check_limits(std::uint64_t pages, owner_id owner) const {
  const auto& limits = namespaces_.options();
  // Dropped requests have no pages, but slots are still being requested for each of them.
  if (reservations_.pages() + pages > limits.max_reserved_pages || reservations_.size() >= limits.max_reserved_pages)
    return error{errc::limit_exceeded, "more than " + std::to_string(limits.max_reserved_pages) +
                                           " pages would be reserved at one time; commit or abort some first, or "
                                           "raise registry.max_reserved_pages"};
  if (reservations_.count(owner) >= limits.max_reservations_per_owner)
    return error{errc::limit_exceeded, "the client has " + std::to_string(limits.max_reservations_per_owner) +
                                           " reservations, which is the limit; commit or abort some first"};
  return std::nullopt;
}

// -- begin ----------------------------------------------------------------------------------------------------------

result<reserve_plan> shard_writes::repeat(reservation_number number, const key_digest& fingerprint) const {
  const auto& r = reservations_.at(number);
  if (r.fingerprint != fingerprint)
    return fail(errc::invalid_argument, "the ticket was used for other keys; use a new ticket per request");
  reserve_plan plan;
  if (r.state == reservation::phase::awaiting_slots) {
    plan.what = reserve_plan::kind::pending;
    plan.plan = reservations_.plan_id(number);
  } else {
    plan.reply.results.items = r.answers;
  }
  return plan;
}

result<reserve_plan> shard_writes::begin_reserve(const reserve_request& request, timestamp now) {
  const auto ns = namespaces_.find_namespace(request.ns);
  if (!ns)
    return namespaces_.refuse(ns.error());
  if (auto bad = check_reserve(ns->keys, request))
    return namespaces_.refuse(std::move(*bad));
  if (const auto& recorder = namespaces_.options().recorder)
    recorder->saves(request.keys.items, request.parents.items);
  // Applies to all ranks: a key that one rank cannot store never becomes complete.
  if (const auto& condition = namespaces_.options().condition)
    if (auto degraded = condition->refuses_saves(request.ns))
      return only_stored(*ns, request, std::move(*degraded), now);
  const reservation_name name{request.ticket, ns->number, request.rank};
  const auto fingerprint = hash_key(std::as_bytes(std::span(request.keys.items)));
  if (const auto known = live_reservation(name, now)) {
    auto repeated = repeat(*known, fingerprint);
    if (!repeated)
      return namespaces_.refuse(std::move(repeated.error()));
    return repeated;
  }
  found_.resize(request.keys.size());
  ns->keys.table().find(request.keys.items, found_);
  return begin(*ns, {name, request.expires_in, request.keys.items, request.parents.items}, fingerprint, now);
}

result<reserve_plan> shard_writes::only_stored(const found_namespace& ns, const reserve_request& request, error why,
                                               timestamp now) {
  found_.resize(request.keys.size());
  ns.keys.table().find(request.keys.items, found_);
  note_refused(ns.keys, request.keys.items, key_event::save_refused, request.rank);
  reserve_plan plan;
  used_.clear();
  for (const auto entry : found_) {
    const bool stored = entry != no_entry && ns.keys.table().page(entry, request.rank).live();
    plan.reply.results.items.push_back(answered(stored ? errc::exists : why.code));
    if (stored)
      used_.push_back(entry);
  }
  if (used_.empty())
    return namespaces_.refuse(std::move(why));
  ns.keys.touch(used_, request.keys.size() - used_.size(), 0, namespaces_.clock().now(now));
  return plan;
}

std::optional<plan_id> shard_writes::awaited(const found_namespace& ns, const allocate_request& request, timestamp now,
                                             bool may_wait) {
  const auto& table = ns.keys.table();
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    // When another key's reservation ended, this entry may have been removed with it.
    if (found_[i] == no_entry || table.entry(found_[i]).key != request.keys[i])
      continue;
    const auto cell = table.page(found_[i], request.rank);
    if (!cell.reserved() || !reservations_.of_page(cell.reserved_page()).shareable())
      continue;
    const auto& page = reservations_.page(cell.reserved_page());
    if (page.where.generation == 0 && may_wait)
      return reservations_.plan_id(page.by);
    if (page.where.generation != 0 && page.deadline <= now)
      expire_shared(cell.reserved_page());
  }
  return std::nullopt;
}

result<reserve_plan> shard_writes::begin_allocate(const allocate_request& request, timestamp now, bool may_wait) {
  const auto ns = namespaces_.find_rank(request.ns, request.rank);
  if (!ns)
    return namespaces_.refuse(ns.error());
  auto bad = shard_namespaces::check_duration(request.expires_in, namespaces_.options().max_reservation, "expires_in");
  if (!bad)
    bad = check_new_keys(request.keys.items, request.parents.items);
  if (bad)
    return namespaces_.refuse(std::move(*bad));
  found_.resize(request.keys.size());
  ns->keys.table().find(request.keys.items, found_);
  if (const auto other = awaited(*ns, request, now, may_wait)) {
    reserve_plan plan;
    plan.what = reserve_plan::kind::wait;
    plan.plan = *other;
    return plan;
  }
  const reservation_name unowned{{}, ns->number, request.rank};
  return begin(*ns, {unowned, request.expires_in, request.keys.items, request.parents.items}, {}, now);
}

result<reserve_plan> shard_writes::begin(const found_namespace& ns, const slot_request& request,
                                         const key_digest& fingerprint, timestamp now) {
  auto& keys = ns.keys;
  std::uint64_t fresh = 0;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    const auto entry = found_[i];
    const bool known = entry != no_entry && keys.table().entry(entry).key == request.keys[i];
    const auto cell = known ? keys.table().page(entry, request.name.rank) : page_cell{};
    fresh += cell.live() || cell.reserved() ? 0 : 1;
  }
  if (fresh > 0)
    if (auto full = check_limits(fresh, request.name.ticket.owner)) {
      note_refused(keys, request.keys, key_event::save_over_limit, request.name.rank);
      return namespaces_.refuse(std::move(*full));
    }
  keys.make_room(fresh, request.name.rank, namespaces_.clock().now(now));
  reserve_plan plan;
  const auto number = mark(keys, request, now, plan.reply.results.items);
  keys.touch(used_, fresh, 0, namespaces_.clock().now(now));
  keys.announce(announced_);
  keys.account();
  if (!number)
    return plan;
  auto& r = reservations_.at(*number);
  r.fingerprint = fingerprint;
  r.answers = std::move(plan.reply.results.items);
  plan.reply.results.items.clear();
  plan.what = reserve_plan::kind::needs_slots;
  plan.plan = reservations_.plan_id(*number);
  plan.slots_needed = r.open_pages;
  return plan;
}

std::optional<reservation_number> shard_writes::mark(key_space& ns, const slot_request& request, timestamp now,
                                                     std::vector<location>& answers) {
  const auto& keys = request.keys;
  const auto rank = request.name.rank;
  std::optional<reservation_number> number;
  answers.assign(keys.size(), answered(errc::busy));
  used_.clear();
  announced_.clear();
  auto previous = no_entry;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto at = static_cast<std::uint32_t>(i);
    const auto entry = ns.find_or_admit(keys[i], found_[i]);
    if (entry == no_entry) {
      answers[i] = answered(errc::full);
      ns.note(keys[i], key_event::save_without_entry, rank);
      continue;
    }
    found_[i] = entry;
    // A key that occurs twice gets the parent of its first place: with the second one's parent it would be its own
    // ancestor, and such keys could never be evicted. For the same reason a key is not its own parent, even if a slot
    // client says so.
    const auto parent = request.parents.empty() ? key_digest{} : request.parents[i];
    if (ns.first_in_request(entry) && !parent.is_null() && parent != keys[i])
      ns.adopt_parent(entry, parent, previous);
    previous = entry;
    const auto cell = ns.table().page(entry, rank);
    if (cell.live()) {
      answers[i] = answered(errc::exists);
      if (request.shareable()) {
        // The client may write the page again, in place.
        answers[i].where = cell.where();
        ns.protect(entry, namespaces_.clock().after(now, request.lasts));
      }
      used_.push_back(entry);
    } else if (cell.reserved()) {
      answers[i] = share(cell.reserved_page(), request, at, number, now);
    } else {
      if (!number) {
        number = reservations_.open(request.name, request.lasts);
        if (!request.shareable())
          reservations_.set_deadline(*number, now + request.lasts);
      }
      const auto page = reservations_.add_page(*number, entry, at);
      ns.reserve(entry, rank, page_cell::reserved_by(page));
      if (ns.table().entry(entry).live == 0)
        announced_.push_back(entry);
    }
  }
  ns.end_request(found_);
  if (number && request.shareable())
    for (std::uint32_t i = 0; i < answers.size(); ++i)
      if (answers[i].where.generation != 0)
        reservations_.at(*number).known.push_back({keys[i], i});
  return number;
}

location shard_writes::share(reserved_page_number number, const slot_request& request, std::uint32_t at,
                             std::optional<reservation_number> own, timestamp now) {
  auto& page = reservations_.page(number);
  if (!request.shareable() || !reservations_.at(page.by).shareable())
    return answered(errc::busy);
  if (page.where.generation != 0) {
    page.shared = 1;
    reservations_.set_page_deadline(number, std::max(page.deadline, later(now, request.lasts)));
    return answered(errc::ok, page.where);
  }
  if (own && page.by == *own)
    reservations_.at(*own).repeated.push_back({at, page.answer});
  return answered(errc::busy);
}

// -- finish ---------------------------------------------------------------------------------------------------------

slot_ref shard_writes::next_granted(std::span<const slot_ref>& granted) {
  while (!granted.empty()) {
    const auto where = granted.front();
    granted = granted.subspan(1);
    if (where.generation != 0)
      return where;
    namespaces_.count_refused(); // allocators never grant generation 0
  }
  return {};
}

location shard_writes::promise_again(key_space& ns, const reservation& r, const key_digest& key, slot_ref where,
                                     timestamp now) {
  const auto entry = ns.table().find(key);
  const auto cell = entry != no_entry ? ns.table().page(entry, r.name.rank) : page_cell{};
  if (cell.live() && cell.where() == where) {
    ns.protect(entry, namespaces_.clock().after(now, r.lasts));
    return answered(errc::exists, where);
  }
  if (!cell.reserved() || !reservations_.of_page(cell.reserved_page()).shareable())
    return answered(errc::busy);
  const auto& page = reservations_.page(cell.reserved_page());
  if (page.where != where || page.deadline <= now)
    return answered(errc::busy);
  reservations_.set_page_deadline(cell.reserved_page(), std::max(page.deadline, later(now, r.lasts)));
  return answered(errc::ok, where);
}

result<reserve_reply> shard_writes::finish_reserve(plan_id plan, std::span<const slot_ref> granted, timestamp now) {
  const auto number = reservations_.find_plan(plan);
  if (!number)
    return namespaces_.refuse({errc::internal, "no reservation awaits slots under plan " + std::to_string(plan)});
  if (const auto& r = reservations_.at(*number); r.state == reservation::phase::awaiting_slots && r.deadline <= now)
    expire_reservation(*number);

  auto& r = reservations_.at(*number);
  auto& ns = namespaces_.at(r.name.ns);
  const bool dropped = r.state == reservation::phase::dropped;
  for (std::size_t i = 0; !dropped && i < r.pages.size(); ++i) {
    const auto reserved = r.pages[i];
    if (reserved == no_reserved_page)
      continue;
    const auto where = next_granted(granted);
    if (where.generation == 0) {
      end_page(reserved, errc::full);
      continue;
    }
    auto& page = reservations_.page(reserved);
    page.where = where;
    if (r.shareable())
      reservations_.set_page_deadline(reserved, later(now, r.lasts));
    ns.assign_slot(page.entry, r.name.rank, where.slot);
    r.answers[page.answer] = answered(errc::ok, where);
  }
  for (auto left = next_granted(granted); left.generation != 0; left = next_granted(granted))
    ns.outbox().unused(r.name.rank, left);
  if (dropped) {
    reservations_.close(*number);
    return fail(errc::expired, "the reservation expired, was aborted, or was removed with its namespace, before there "
                               "were slots for it");
  }
  // Pages may have changed since the request began, so the answers known then are checked again.
  for (const auto& [key, at] : r.known)
    r.answers[at] = promise_again(ns, r, key, r.answers[at].where, now);
  for (const auto& [at, first] : r.repeated)
    r.answers[at] = r.answers[first];
  reserve_reply reply;
  r.state = reservation::phase::open;
  if (r.shareable()) {
    reply.results.items = std::move(r.answers); // no request can ask for them again
    r.answers.clear();
  } else {
    reply.results.items = r.answers;
    reservations_.set_deadline(*number, now + r.lasts);
  }
  close_if_ended(*number);
  return reply;
}

} // namespace troupe
