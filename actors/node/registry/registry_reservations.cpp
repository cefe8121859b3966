// The writing half of registry_state: reserve, commit, abort, invalidate.

#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

namespace {

location answer(errc code, slot_ref where = {}) {
  return {where, static_cast<std::uint32_t>(code)};
}

std::uint8_t code_of(errc code) {
  return static_cast<std::uint8_t>(code);
}

} // namespace

// -- ends of reservations -------------------------------------------------------------------------------------------

std::optional<reservation_number> registry_state::live_reservation(const reservation_name& name, timestamp now) {
  const auto number = reservations_.find(name);
  if (!number || reservations_.at(*number).deadline > now)
    return number;
  expire_reservation(*number);
  return std::nullopt;
}

void registry_state::abort_page(page_record record, errc code) {
  const auto page = reservations_.page(record);
  auto& r = reservations_.at(page.owner);
  r.answers[page.answer] = answer(code);
  reservations_.remove_page(record);
  spaces_[r.name.space]->unreserve(page.entry, r.name.rank, page.where);
}

void registry_state::close_if_ended(reservation_number number) {
  const auto& r = reservations_.at(number);
  if (r.open_pages > 0)
    return;
  if (r.state == reservation::phase::awaiting_slots)
    reservations_.drop(number);
  else
    reservations_.close(number);
}

void registry_state::end_reservation(reservation_number number) {
  for (std::size_t i = 0; i < reservations_.at(number).pages.size(); ++i)
    if (const auto record = reservations_.at(number).pages[i]; record != no_record)
      abort_page(record, errc::expired);
  close_if_ended(number);
}

void registry_state::expire_reservation(reservation_number number) {
  const auto& r = reservations_.at(number);
  if (!r.doomed)
    expired_reservations_ += r.open_pages;
  end_reservation(number);
}

// -- reserve --------------------------------------------------------------------------------------------------------

std::optional<error> registry_state::check_new_keys(std::span<const key_digest> keys,
                                                    std::span<const key_digest> parents) const {
  if (auto bad = check_keys(keys))
    return bad;
  if (!parents.empty() && parents.size() != keys.size())
    return error{errc::invalid_argument, std::to_string(parents.size()) + " parents for " +
                                             std::to_string(keys.size()) + " keys; give one each, or none"};
  if (options_.shard_count == 1)
    return std::nullopt;
  for (const auto& key : keys)
    if (const auto owner = shard_of(key, options_.shard_count); owner != options_.shard)
      return error{errc::invalid_argument, "key " + to_string(key) + " belongs to shard " + std::to_string(owner) +
                                               " of " + std::to_string(options_.shard_count) + ", and this is shard " +
                                               std::to_string(options_.shard)};
  return std::nullopt;
}

std::optional<error> registry_state::check_reserve(const key_space& space, const reserve_request& request) const {
  if (auto bad = check_rank(space, request.rank))
    return bad;
  if (request.ticket.owner == 0)
    return error{errc::invalid_argument, "the ticket's owner is 0, which stands for nobody; use the client's own id"};
  if (auto bad = check_duration(request.expires_in, options_.max_reservation, "expires_in"))
    return bad;
  if (auto bad = check_new_keys(request.keys.items, request.parents.items))
    return bad;
  for (std::size_t i = 0; i < request.parents.size(); ++i)
    if (request.parents[i] == request.keys[i])
      return error{errc::invalid_argument, "key " + to_string(request.keys[i]) + " is given as its own parent"};
  return std::nullopt;
}

std::optional<error> registry_state::check_reservation_limits(std::uint64_t pages, owner_id owner) const {
  if (reservations_.pages() + anonymous_.pages() + pages > options_.max_reserved_pages ||
      reservations_.size() >= options_.max_reserved_pages)
    return error{errc::limit_exceeded, "more than " + std::to_string(options_.max_reserved_pages) +
                                           " pages would be reserved at one time; commit or abort some first"};
  if (reservations_.count(owner) >= options_.max_reservations_per_owner)
    return error{errc::limit_exceeded, "the client has " + std::to_string(options_.max_reservations_per_owner) +
                                           " reservations, the most that are allowed; commit or abort some first"};
  return std::nullopt;
}

result<reserve_plan> registry_state::repeat_reserve(reservation_number number, const key_digest& fingerprint) const {
  const auto& r = reservations_.at(number);
  if (r.fingerprint != fingerprint)
    return fail(errc::invalid_argument, "the ticket was used for other keys; use a new one for each request");
  reserve_plan plan;
  if (r.state == reservation::phase::awaiting_slots) {
    plan.what = reserve_plan::kind::pending;
    plan.plan = reservations_.plan_id(number);
  } else {
    plan.reply.results.items = r.answers;
  }
  return plan;
}

result<reserve_plan> registry_state::begin_reserve(const reserve_request& request, timestamp now) {
  const auto space_at = space_number(request.space);
  if (!space_at)
    return refuse(space_at.error());
  auto& space = *spaces_[*space_at];
  if (auto bad = check_reserve(space, request))
    return refuse(std::move(*bad));
  // On all ranks: a key that one of them cannot store never becomes complete.
  if (auto degraded = options_.condition ? options_.condition->refuses_saves(request.space) : std::nullopt)
    return refuse(std::move(*degraded));

  const reservation_name name{request.ticket, *space_at, request.rank};
  const auto& keys = request.keys.items;
  const auto fingerprint = hash_key(std::as_bytes(std::span(keys)));
  if (const auto known = live_reservation(name, now)) {
    auto repeated = repeat_reserve(*known, fingerprint);
    if (!repeated)
      ++refused_;
    return repeated;
  }

  found_.resize(keys.size());
  space.table().find(keys, found_);
  const auto fresh = std::count_if(found_.begin(), found_.end(), [&](entry_index entry) {
    if (entry == no_entry)
      return true;
    const auto cell = space.table().page(entry, request.rank);
    return !cell.live() && !cell.reserved();
  });
  if (fresh > 0)
    if (auto full = check_reservation_limits(static_cast<std::uint64_t>(fresh), request.ticket.owner))
      return refuse(std::move(*full));

  reserve_plan plan;
  std::optional<reservation_number> number;
  space.make_room(static_cast<std::uint64_t>(fresh), request.rank, clock_.now(now));
  mark_keys(space, name, request, now, plan.reply.results.items, number);
  space.touch(used_);
  space.account();
  if (!number)
    return plan;
  auto& r = reservations_.at(*number);
  r.fingerprint = fingerprint;
  r.lasts = request.expires_in;
  r.answers = std::move(plan.reply.results.items);
  plan.reply.results.items.clear();
  plan.what = reserve_plan::kind::needs_slots;
  plan.plan = reservations_.plan_id(*number);
  plan.slots_needed = r.open_pages;
  return plan;
}

void registry_state::mark_keys(key_space& space, const reservation_name& name, const reserve_request& request,
                               timestamp now, std::vector<location>& answers,
                               std::optional<reservation_number>& number) {
  const auto& keys = request.keys.items;
  answers.assign(keys.size(), answer(errc::busy));
  used_.clear();
  auto previous = no_entry;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto entry = space.find_or_admit(keys[i], found_[i]);
    if (entry == no_entry) {
      answers[i] = answer(errc::full);
      continue;
    }
    found_[i] = entry;
    // A key that occurs twice is named by its first place: with the second one's parent it would be its own ancestor,
    // and such keys could never be evicted.
    if (space.first_in_request(entry) && !request.parents.empty() && !request.parents[i].is_null())
      space.adopt_parent(entry, request.parents[i], previous);
    previous = entry;
    const auto cell = space.table().page(entry, name.rank);
    if (cell.live()) {
      answers[i] = answer(errc::exists);
      used_.push_back(entry);
    } else if (!cell.reserved()) {
      if (!number)
        number = reservations_.open(name, now + request.expires_in);
      const auto record = reservations_.add_page(*number, entry, static_cast<std::uint32_t>(i));
      space.reserve(entry, name.rank, page_cell::reserved_by(record));
    }
  }
  space.end_request(found_);
}

slot_ref registry_state::next_granted(std::span<const slot_ref>& granted) {
  while (!granted.empty()) {
    const auto where = granted.front();
    granted = granted.subspan(1);
    if (where.generation != 0)
      return where;
    ++refused_; // never given out by an allocator
  }
  return {};
}

result<reserve_reply> registry_state::finish_reserve(plan_id plan, std::span<const slot_ref> granted, timestamp now) {
  if ((plan & anonymous_table::plan_bit) != 0)
    return finish_allocate(plan, granted, now);
  const auto number = reservations_.find_plan(plan);
  if (!number)
    return refuse({errc::internal, "no reservation waits for slots under plan " + std::to_string(plan)});
  if (const auto& r = reservations_.at(*number); r.state == reservation::phase::awaiting_slots && r.deadline <= now)
    expire_reservation(*number);

  auto& r = reservations_.at(*number);
  auto& space = *spaces_[r.name.space];
  const bool dropped = r.state == reservation::phase::dropped;
  for (std::size_t i = 0; !dropped && i < r.pages.size(); ++i) {
    if (r.pages[i] == no_record)
      continue;
    const auto where = next_granted(granted);
    if (where.generation == 0) {
      abort_page(r.pages[i], errc::full);
      continue;
    }
    auto& page = reservations_.page(r.pages[i]);
    page.where = where;
    space.assign_slot(page.entry, r.name.rank, where.slot);
    r.answers[page.answer] = answer(errc::ok, where);
  }
  for (auto left = next_granted(granted); left.generation != 0; left = next_granted(granted))
    space.outbox().unused(r.name.rank, left);
  if (dropped) {
    reservations_.close(*number);
    return fail(errc::expired, "the reservation expired or was given up before there were slots for it");
  }
  reserve_reply reply;
  reply.results.items = r.answers;
  r.state = reservation::phase::open;
  reservations_.set_deadline(*number, now + r.lasts);
  close_if_ended(*number);
  return reply;
}

// -- commit, abort, invalidate --------------------------------------------------------------------------------------

void registry_state::find_entries(const key_space& space, std::span<const page_ref> pages) {
  keys_.clear();
  for (const auto& page : pages)
    keys_.push_back(page.key);
  found_.resize(keys_.size());
  space.table().find(keys_, found_);
}

errc registry_state::commit_page(key_space& space, const reservation_name& name,
                                 std::optional<reservation_number> number, const page_ref& page, entry_index entry,
                                 bool must_exist) {
  const bool ended = reservations_.recently_ended(name);
  const auto gone = ended || number ? errc::expired : errc::not_found;
  if (entry == no_entry)
    return gone;
  const auto cell = space.table().page(entry, name.rank);
  if (cell.live() && cell.where() == page.where) {
    if (must_exist && !number && !ended)
      return errc::not_owner;
    used_.push_back(entry);
    return errc::ok;
  }
  if (cell.live())
    return ended ? errc::expired : errc::stale;
  if (!cell.reserved())
    return gone;
  if (!cell.has_token())
    return ended ? errc::expired : errc::not_owner;
  const auto& reserved = reservations_.page(cell.record());
  if (!number || reserved.owner != *number)
    return ended ? errc::expired : errc::not_owner;
  if (page.where.generation == 0 || reserved.where != page.where)
    return errc::stale;
  reservations_.at(*number).answers[reserved.answer] = answer(errc::exists);
  reservations_.remove_page(cell.record());
  if (space.publish(entry, name.rank, page.where))
    inserted_.push_back(entry);
  used_.push_back(entry);
  return errc::ok;
}

void registry_state::note_written(key_space& space) {
  space.inserted(inserted_);
  // Keys that were there before stand among new ones: all together are in prefix order only if all are moved.
  if (inserted_.size() < used_.size())
    space.touch(used_);
}

result<registry_state::checked_space> registry_state::find_written(const namespace_id& id, rank_number rank,
                                                                   std::span<const page_ref> pages) {
  auto space = find_rank(id, rank);
  if (!space)
    return refuse(space.error());
  if (auto bad = check_pages(pages))
    return refuse(std::move(*bad));
  find_entries(space->keys, pages);
  return space;
}

result<finish_reply> registry_state::commit(const finish_request& request, timestamp now) {
  const auto space = find_written(request.space, request.rank, request.pages.items);
  if (!space)
    return tl::unexpected<error>(space.error());
  const reservation_name name{request.ticket, space->number, request.rank};
  const auto number = live_reservation(name, now);
  used_.clear();
  inserted_.clear();
  finish_reply reply;
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto entry = space->keys.table().refresh(found_[i], request.pages[i].key);
    reply.results.items.push_back(
        code_of(commit_page(space->keys, name, number, request.pages[i], entry, request.must_exist)));
  }
  note_written(space->keys);
  if (number)
    close_if_ended(*number);
  return reply;
}

errc registry_state::abort_one(const key_space& space, const reservation_name& name,
                               std::optional<reservation_number> number, const page_ref& page, entry_index entry) {
  const bool known = number || reservations_.recently_ended(name);
  const auto cell = entry != no_entry ? space.table().page(entry, name.rank) : page_cell{};
  if (cell.has_token() && number) {
    const auto& reserved = reservations_.page(cell.record());
    if (reserved.owner == *number) {
      if (page.where.generation != 0 && page.where != reserved.where)
        return errc::stale;
      abort_page(cell.record(), errc::expired);
      return errc::ok;
    }
  }
  if (cell.live() && cell.where() == page.where)
    return errc::not_owner;
  if (known)
    return errc::ok;
  return cell.live() || cell.reserved() ? errc::not_owner : errc::not_found;
}

result<finish_reply> registry_state::abort(const finish_request& request, timestamp now) {
  const auto space = find_written(request.space, request.rank, request.pages.items);
  if (!space)
    return tl::unexpected<error>(space.error());
  const reservation_name name{request.ticket, space->number, request.rank};
  const auto number = live_reservation(name, now);
  finish_reply reply;
  if (request.pages.empty()) {
    if (!number && request.must_exist && !reservations_.recently_ended(name))
      return fail(errc::not_found, "nothing is reserved under this ticket: it ran out, or is another caller's");
    if (number)
      end_reservation(*number);
    return reply;
  }
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto& page = request.pages[i];
    const auto entry = space->keys.table().refresh(found_[i], page.key);
    reply.results.items.push_back(code_of(abort_one(space->keys, name, number, page, entry)));
  }
  if (number)
    close_if_ended(*number);
  return reply;
}

result<finish_reply> registry_state::invalidate(const invalidate_request& request, timestamp now) {
  const auto found = find_written(request.space, request.rank, request.pages.items);
  if (!found)
    return tl::unexpected<error>(found.error());
  auto& space = found->keys;
  finish_reply reply;
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto& page = request.pages[i];
    const auto entry = space.table().refresh(found_[i], page.key);
    const auto cell = entry != no_entry ? space.table().page(entry, request.rank) : page_cell{};
    auto code = errc::not_found;
    if (cell.live() && cell.where() == page.where) {
      space.invalidate(entry, request.rank, clock_.now(now), true);
      ++invalidated_pages_;
      code = errc::ok;
    } else if (cell.live() || cell.reserved()) {
      code = errc::stale;
    }
    reply.results.items.push_back(code_of(code));
  }
  return reply;
}

} // namespace troupe
