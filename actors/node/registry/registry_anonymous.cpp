// What registry_state does for clients that know a page by key and slot number only. The reasons are in
// docs/decisions/0006-clients-without-tokens.md.

#include "actors/node/registry/registry_state.hpp"

#include <algorithm>
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

// -- looking up -------------------------------------------------------------------------------------------------------

result<result_codes> registry_state::exists(const exists_request& request) {
  const auto number = space_number(request.space);
  if (!number)
    return refuse(number.error());
  const auto& space = *spaces_[*number];
  auto bad = request.rank == all_ranks ? std::nullopt : check_rank(space, request.rank);
  if (!bad)
    bad = check_keys(request.keys.items);
  if (bad)
    return refuse(std::move(*bad));
  found_.resize(request.keys.size());
  space.table().find(request.keys.items, found_);
  result_codes reply;
  reply.results.items.reserve(found_.size());
  for (const auto entry : found_) {
    const bool there =
        entry != no_entry &&
        (request.rank == all_ranks ? space.complete(entry) : space.table().page(entry, request.rank).live());
    reply.results.items.push_back(code_of(there ? errc::ok : errc::not_found));
  }
  return reply;
}

result<locate_reply> registry_state::protect(const protect_request& request, timestamp now) {
  const auto space = find_rank(request.space, request.rank);
  if (!space)
    return refuse(space.error());
  auto bad = check_duration(request.protect_for, options_.max_protection, "protect_for");
  if (!bad)
    bad = check_keys(request.keys.items);
  if (bad)
    return refuse(std::move(*bad));
  locate_reply reply{find_pages(space->keys, request.rank, request.keys.items, request.complete_only)};
  const auto until = clock_.after(now, request.protect_for);
  if (request.readers_share > 0 && request.readers_share < whole_share) {
    const auto held = holds_.readers_with(space->number, used_, clock_.now(now));
    if (auto over = check_readers(space->number, request.readers_share, held))
      return refuse(std::move(*over));
    holds_.protect(space->number, used_, until);
  }
  for (const auto entry : used_)
    space->keys.protect(entry, until);
  space->keys.touch(used_);
  return reply;
}

// -- allocate ---------------------------------------------------------------------------------------------------------

void registry_state::end_anonymous(anonymous_number number, coarse_time until) {
  const auto page = anonymous_.at(number);
  anonymous_.remove(number);
  spaces_[page.space]->unreserve(page.entry, page.rank, page.where, until);
}

void registry_state::expire_anonymous(anonymous_number number) {
  if (!removed(anonymous_.at(number).space))
    ++expired_reservations_;
  end_anonymous(number);
}

std::optional<plan_id> registry_state::prepare_allocate(const key_space& space, rank_number rank,
                                                        std::span<const key_digest> keys, timestamp now,
                                                        bool may_wait) {
  found_.resize(keys.size());
  space.table().find(keys, found_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    found_[i] = space.table().refresh(found_[i], keys[i]);
    const auto cell = found_[i] != no_entry ? space.table().page(found_[i], rank) : page_cell{};
    if (!cell.anonymous())
      continue;
    const auto& page = anonymous_.at(cell.record());
    if (page.where.generation == 0 && may_wait)
      return anonymous_.plan_id(page.plan);
    if (page.where.generation != 0 && page.deadline <= now)
      expire_anonymous(cell.record());
  }
  return std::nullopt;
}

result<reserve_plan> registry_state::begin_allocate(const allocate_request& request, timestamp now, bool may_wait) {
  const auto space = find_rank(request.space, request.rank);
  if (!space)
    return refuse(space.error());
  auto bad = check_duration(request.expires_in, options_.max_reservation, "expires_in");
  if (!bad)
    bad = check_new_keys(request.keys.items, request.parents.items);
  if (bad)
    return refuse(std::move(*bad));
  reserve_plan plan;
  const auto& keys = request.keys.items;
  if (const auto other = prepare_allocate(space->keys, request.rank, keys, now, may_wait)) {
    plan.what = reserve_plan::kind::wait;
    plan.plan = *other;
    return plan;
  }
  std::uint64_t fresh = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto entry = space->keys.table().refresh(found_[i], keys[i]);
    const auto cell = entry != no_entry ? space->keys.table().page(entry, request.rank) : page_cell{};
    fresh += cell.live() || cell.reserved() ? 0 : 1;
  }
  if (fresh > 0)
    if (auto full = check_reservation_limits(fresh, 0))
      return refuse(std::move(*full));
  space->keys.make_room(fresh, request.rank, clock_.now(now));
  mark_anonymous(*space, request, now, plan);
  space->keys.touch(used_);
  space->keys.account();
  return plan;
}

void registry_state::mark_anonymous(const checked_space& space, const allocate_request& request, timestamp now,
                                    reserve_plan& plan) {
  const auto& keys = request.keys.items;
  const auto deadline = later(now, request.expires_in);
  std::vector<location> answers(keys.size(), answer(errc::busy));
  std::vector<anonymous_number> pages(keys.size(), no_anonymous);
  std::optional<anonymous_table::plan_number> number;
  used_.clear();
  auto previous = no_entry;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto entry = space.keys.find_or_admit(keys[i], found_[i]);
    if (entry == no_entry) {
      answers[i] = answer(errc::full);
      continue;
    }
    found_[i] = entry;
    // As for writers with tokens, a key that occurs twice is named by its first place.
    const auto parent = request.parents.empty() ? key_digest{} : request.parents[i];
    if (space.keys.first_in_request(entry) && !parent.is_null() && parent != keys[i])
      space.keys.adopt_parent(entry, parent, previous);
    previous = entry;
    const auto cell = space.keys.table().page(entry, request.rank);
    if (cell.live()) {
      // The client may write the page again, in place.
      space.keys.protect(entry, clock_.after(now, request.expires_in));
      answers[i] = answer(errc::exists, cell.where());
      used_.push_back(entry);
    } else if (cell.anonymous()) {
      auto& page = anonymous_.at(cell.record());
      if (page.where.generation != 0) {
        page.shared = true;
        anonymous_.set_deadline(cell.record(), std::max(page.deadline, deadline));
        answers[i] = answer(errc::ok, page.where);
      } else if (number && page.plan == *number) {
        pages[i] = cell.record();
      }
    } else if (!cell.reserved()) {
      if (!number)
        number = anonymous_.open_plan(space.number, request.rank, request.expires_in);
      pages[i] = anonymous_.add(entry, space.number, request.rank, *number);
      space.keys.reserve(entry, request.rank, page_cell::allocated_by(pages[i]));
      ++plan.slots_needed;
    }
  }
  space.keys.end_request(found_);
  if (!number) {
    plan.reply.results.items = std::move(answers);
    return;
  }
  plan.what = reserve_plan::kind::needs_slots;
  plan.plan = anonymous_.plan_id(*number);
  auto& waiting = anonymous_.plan(*number);
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (answers[i].where.generation != 0)
      waiting.known.emplace_back(keys[i], static_cast<std::uint32_t>(i));
  waiting.answers = std::move(answers);
  waiting.pages = std::move(pages);
}

location registry_state::promise_again(key_space& space, const anonymous_plan& plan, const key_digest& key,
                                       slot_ref where, timestamp now) {
  const auto entry = space.table().find(key);
  const auto cell = entry != no_entry ? space.table().page(entry, plan.rank) : page_cell{};
  if (cell.live() && cell.where() == where) {
    space.protect(entry, clock_.after(now, plan.lasts));
    return answer(errc::exists, where);
  }
  if (!cell.anonymous())
    return answer(errc::busy);
  const auto& page = anonymous_.at(cell.record());
  if (page.where != where || page.deadline <= now)
    return answer(errc::busy);
  anonymous_.set_deadline(cell.record(), std::max(page.deadline, later(now, plan.lasts)));
  return answer(errc::ok, where);
}

result<reserve_reply> registry_state::finish_allocate(plan_id id, std::span<const slot_ref> granted, timestamp now) {
  const auto number = anonymous_.find_plan(id);
  if (!number)
    return refuse({errc::internal, "no request waits for slots under plan " + std::to_string(id)});
  auto& plan = anonymous_.plan(*number);
  auto& space = *spaces_[plan.space];
  const bool gone = removed(plan.space);
  for (std::size_t i = 0; i < plan.pages.size() && !gone; ++i) {
    if (plan.pages[i] == no_anonymous)
      continue;
    auto& page = anonymous_.at(plan.pages[i]);
    if (page.where.generation == 0) {
      page.where = next_granted(granted);
      if (page.where.generation != 0) {
        space.assign_slot(page.entry, page.rank, page.where.slot);
        anonymous_.set_deadline(plan.pages[i], later(now, plan.lasts));
      }
    }
    plan.answers[i] = page.where.generation != 0 ? answer(errc::ok, page.where) : answer(errc::full);
  }
  // The time of what was found before begins now as well, if it is still there.
  for (const auto& [key, i] : plan.known)
    if (!gone)
      plan.answers[i] = promise_again(space, plan, key, plan.answers[i].where, now);
  for (const auto page : plan.pages)
    // A key that occurs twice has one page.
    if (page != no_anonymous && anonymous_.at(page).entry != no_entry && anonymous_.at(page).where.generation == 0)
      end_anonymous(page);
  for (auto left = next_granted(granted); left.generation != 0; left = next_granted(granted))
    space.outbox().unused(plan.rank, left);
  reserve_reply reply{std::move(plan.answers)};
  anonymous_.close_plan(*number);
  if (gone)
    return fail(errc::expired, "the namespace was removed before there were slots for the request");
  return reply;
}

// -- confirm, reclaim -------------------------------------------------------------------------------------------------

errc registry_state::confirm_page(key_space& space, rank_number rank, const page_ref& page, entry_index entry,
                                  timestamp now) {
  if (!space.has_slot(rank, page.where.slot))
    return errc::out_of_range;
  const auto cell = entry != no_entry ? space.table().page(entry, rank) : page_cell{};
  const auto named = [&](slot_ref where) {
    return where.generation != 0 && where.slot == page.where.slot &&
           (page.where.generation == 0 || page.where.generation == where.generation);
  };
  if (cell.live()) {
    if (!named(cell.where()))
      return errc::stale;
    used_.push_back(entry);
    return errc::ok;
  }
  if (cell.has_token())
    return errc::not_owner;
  if (!cell.anonymous())
    return errc::not_found;
  const auto number = cell.record();
  const auto written = anonymous_.at(number);
  if (!named(written.where))
    return errc::stale;
  if (written.deadline <= now) {
    expire_anonymous(number);
    return errc::expired;
  }
  anonymous_.remove(number);
  // Another writer may go on writing, with the same bytes, for as long as it was promised.
  if (written.shared)
    space.protect(entry, clock_.after(now, written.deadline - now));
  if (space.publish(entry, rank, written.where))
    inserted_.push_back(entry);
  used_.push_back(entry);
  return errc::ok;
}

result<result_codes> registry_state::confirm(const confirm_request& request, timestamp now) {
  const auto space = find_written(request.space, request.rank, request.pages.items);
  if (!space)
    return tl::unexpected<error>(space.error());
  used_.clear();
  inserted_.clear();
  result_codes reply;
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto entry = space->keys.table().refresh(found_[i], request.pages[i].key);
    reply.results.items.push_back(code_of(confirm_page(space->keys, request.rank, request.pages[i], entry, now)));
  }
  note_written(space->keys);
  return reply;
}

errc registry_state::reclaim_slot(key_space& space, rank_number rank, slot_number slot, timestamp now) {
  if (!space.has_slot(rank, slot))
    return errc::out_of_range;
  // What the index says may be of the past; the entry's page is what counts.
  const auto entry = space.assigned_to(rank, slot);
  const auto cell = entry != no_entry ? space.table().page(entry, rank) : page_cell{};
  if (cell.live() && cell.where().slot == slot) {
    space.invalidate(entry, rank, clock_.now(now), true);
    ++reclaimed_pages_;
    return errc::ok;
  }
  if (cell.has_token()) {
    const auto where = reservations_.page(cell.record()).where;
    return where.generation != 0 && where.slot == slot ? errc::not_owner : errc::not_found;
  }
  if (!cell.anonymous())
    return errc::not_found;
  const auto number = cell.record();
  const auto& page = anonymous_.at(number);
  if (page.where.generation == 0 || page.where.slot != slot)
    return errc::not_found;
  if (page.deadline <= now)
    expire_anonymous(number);
  else if (page.shared)
    return errc::busy;
  else // a late number may be meant for who had the slot before: whoever has it now may write on
    end_anonymous(number, clock_.after(now, page.deadline - now));
  return errc::ok;
}

result<result_codes> registry_state::reclaim(const reclaim_request& request, timestamp now) {
  const auto space = find_rank(request.space, request.rank);
  if (!space)
    return refuse(space.error());
  if (auto bad = check_batch(request.slots.size()))
    return refuse(std::move(*bad));
  if (!space->keys.options().slot_index)
    return refuse({errc::unsupported, "namespace \"" + space->keys.spec().name +
                                          "\" does not know keys by their slots; add it with a slot index"});
  result_codes reply;
  reply.results.items.reserve(request.slots.size());
  for (const auto slot : request.slots)
    reply.results.items.push_back(code_of(reclaim_slot(space->keys, request.rank, slot, now)));
  return reply;
}

} // namespace troupe
