// The second half of shard_writes: publishes, aborts or reclaims reserved pages, and invalidates live ones.

#include "actors/node/registry/answers.hpp"
#include "actors/node/registry/shard_writes.hpp"

#include <string>
#include <utility>

namespace troupe {

result<found_namespace> shard_writes::find_written(const namespace_id& id, rank_number rank,
                                                   std::span<const page_ref> pages) {
  auto ns = namespaces_.find_rank(id, rank);
  if (!ns)
    return namespaces_.refuse(ns.error());
  if (auto bad = namespaces_.check_batch(pages.size()))
    return namespaces_.refuse(std::move(*bad));
  keys_.clear();
  for (const auto& page : pages) {
    if (page.key.is_null())
      return namespaces_.refuse({errc::invalid_argument, "the null key means no key, and has no page"});
    keys_.push_back(page.key);
  }
  found_.resize(keys_.size());
  ns->keys.table().find(keys_, found_);
  return ns;
}

void shard_writes::publish(key_space& ns, entry_index entry, rank_number rank, slot_ref where) {
  if (ns.publish(entry, rank, where))
    inserted_.push_back(entry);
  used_.push_back(entry);
}

void shard_writes::note_written(key_space& ns, rank_number rank, page_origin origin, timestamp now) {
  namespaces_.advance_history(now);
  if (origin == page_origin::client) {
    ns.inserted(inserted_);
  } else {
    ns.fetched(inserted_, origin == page_origin::transient, namespaces_.clock().now(now),
               namespaces_.clock().after(now, namespaces_.options().await_fetched));
    lookup_history::batch notes(namespaces_.history(), ns.id(), rank);
    for (const auto entry : inserted_)
      notes.add(ns.table().entry(entry).key, key_event::fetched);
  }
  // Existing keys lie between new ones: all of them must move for the whole to be in prefix order.
  if (inserted_.size() < used_.size())
    ns.touch_again(used_);
}

// -- with a ticket --------------------------------------------------------------------------------------------------

errc shard_writes::commit_page(key_space& ns, const reservation_name& name, std::optional<reservation_number> number,
                               const page_ref& page, entry_index entry, bool must_exist) {
  const bool ended = reservations_.recently_ended(name);
  const auto gone = ended || number ? errc::expired : errc::not_found;
  if (entry == no_entry)
    return gone;
  const auto cell = ns.table().page(entry, name.rank);
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
  const auto& reserved = reservations_.page(cell.reserved_page());
  if (!number || reserved.by != *number)
    return ended ? errc::expired : errc::not_owner;
  if (page.where.generation == 0 || reserved.where != page.where)
    return errc::stale;
  reservations_.at(*number).answers[reserved.answer] = answered(errc::exists);
  reservations_.remove_page(cell.reserved_page());
  publish(ns, entry, name.rank, page.where);
  return errc::ok;
}

result<finish_reply> shard_writes::commit(const finish_request& request, timestamp now) {
  const auto ns = find_written(request.ns, request.rank, request.pages.items);
  if (!ns)
    return tl::unexpected<error>(ns.error());
  const reservation_name name{request.ticket, ns->number, request.rank};
  const auto number = live_reservation(name, now);
  used_.clear();
  inserted_.clear();
  finish_reply reply;
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto entry = ns->keys.table().refresh(found_[i], request.pages[i].key);
    reply.results.items.push_back(
        byte_of(commit_page(ns->keys, name, number, request.pages[i], entry, request.must_exist)));
  }
  note_written(ns->keys, request.rank, request.origin, now);
  // Closed last: a page that is named twice is checked both times against the reservation as it was.
  if (number)
    close_if_ended(*number);
  return reply;
}

errc shard_writes::abort_one(const key_space& ns, const reservation_name& name,
                             std::optional<reservation_number> number, const page_ref& page, entry_index entry) {
  const bool known = number || reservations_.recently_ended(name);
  const auto cell = entry != no_entry ? ns.table().page(entry, name.rank) : page_cell{};
  if (cell.reserved() && number) {
    const auto& reserved = reservations_.page(cell.reserved_page());
    if (reserved.by == *number) {
      if (page.where.generation != 0 && page.where != reserved.where)
        return errc::stale;
      end_page(cell.reserved_page(), errc::expired);
      return errc::ok;
    }
  }
  if (cell.live() && cell.where() == page.where)
    return errc::not_owner;
  if (known)
    return errc::ok;
  return cell.live() || cell.reserved() ? errc::not_owner : errc::not_found;
}

result<finish_reply> shard_writes::abort(const finish_request& request, timestamp now) {
  const auto ns = find_written(request.ns, request.rank, request.pages.items);
  if (!ns)
    return tl::unexpected<error>(ns.error());
  const reservation_name name{request.ticket, ns->number, request.rank};
  const auto number = live_reservation(name, now);
  finish_reply reply;
  if (request.pages.empty()) {
    if (!number && request.must_exist && !reservations_.recently_ended(name))
      return fail(errc::not_found,
                  "nothing is reserved under this ticket: it has expired, or belongs to another caller");
    if (number)
      end_reservation(*number);
    return reply;
  }
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto& page = request.pages[i];
    const auto entry = ns->keys.table().refresh(found_[i], page.key);
    reply.results.items.push_back(byte_of(abort_one(ns->keys, name, number, page, entry)));
  }
  if (number)
    close_if_ended(*number);
  return reply;
}

// -- slot clients ---------------------------------------------------------------------------------------------------

errc shard_writes::confirm_page(key_space& ns, rank_number rank, const page_ref& page, entry_index entry,
                                timestamp now) {
  if (!ns.has_slot(rank, page.where.slot))
    return errc::out_of_range;
  const auto cell = entry != no_entry ? ns.table().page(entry, rank) : page_cell{};
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
  if (!cell.reserved())
    return errc::not_found;
  const auto number = cell.reserved_page();
  if (!reservations_.of_page(number).shareable())
    return errc::not_owner;
  const auto written = reservations_.page(number);
  if (!named(written.where))
    return errc::stale;
  if (written.deadline <= now) {
    expire_shared(number);
    return errc::expired;
  }
  reservations_.remove_page(number);
  close_if_ended(written.by);
  // Another writer may still be writing the same bytes, for as long as it was promised.
  if (written.shared != 0)
    ns.protect(entry, namespaces_.clock().after(now, written.deadline - now));
  publish(ns, entry, rank, written.where);
  return errc::ok;
}

result<result_codes> shard_writes::confirm(const confirm_request& request, timestamp now) {
  const auto ns = find_written(request.ns, request.rank, request.pages.items);
  if (!ns)
    return tl::unexpected<error>(ns.error());
  used_.clear();
  inserted_.clear();
  result_codes reply;
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto entry = ns->keys.table().refresh(found_[i], request.pages[i].key);
    reply.results.items.push_back(byte_of(confirm_page(ns->keys, request.rank, request.pages[i], entry, now)));
  }
  note_written(ns->keys, request.rank, page_origin::client, now);
  return reply;
}

errc shard_writes::reclaim_slot(key_space& ns, rank_number rank, slot_number slot, timestamp now) {
  if (!ns.has_slot(rank, slot))
    return errc::out_of_range;
  // The index may be outdated; the entry's page decides.
  const auto entry = ns.assigned_to(rank, slot);
  const auto cell = entry != no_entry ? ns.table().page(entry, rank) : page_cell{};
  if (cell.live() && cell.where().slot == slot) {
    ns.note(ns.table().entry(entry).key, key_event::reclaimed, rank);
    ns.invalidate(entry, rank, namespaces_.clock().now(now), true);
    ++reclaimed_;
    return errc::ok;
  }
  if (!cell.reserved())
    return errc::not_found;
  const auto number = cell.reserved_page();
  const auto& page = reservations_.page(number);
  if (page.where.generation == 0 || page.where.slot != slot)
    return errc::not_found;
  if (!reservations_.of_page(number).shareable())
    return errc::not_owner;
  if (page.deadline <= now)
    expire_shared(number);
  else if (page.shared != 0)
    return errc::busy;
  else // a late request may mean the slot's earlier owner: the present one may still be writing
    end_shared(number, namespaces_.clock().after(now, page.deadline - now));
  return errc::ok;
}

result<result_codes> shard_writes::reclaim(const reclaim_request& request, timestamp now) {
  const auto ns = namespaces_.find_rank(request.ns, request.rank);
  if (!ns)
    return namespaces_.refuse(ns.error());
  if (auto bad = namespaces_.check_batch(request.slots.size()))
    return namespaces_.refuse(std::move(*bad));
  if (!ns->keys.options().slot_index)
    return namespaces_.refuse(
        {errc::unsupported, "namespace \"" + ns->keys.spec().name + "\" has no slot index; add it with one"});
  result_codes reply;
  reply.results.items.reserve(request.slots.size());
  for (const auto slot : request.slots)
    reply.results.items.push_back(byte_of(reclaim_slot(ns->keys, request.rank, slot, now)));
  return reply;
}

// -- live pages -----------------------------------------------------------------------------------------------------

result<finish_reply> shard_writes::invalidate(const invalidate_request& request, timestamp now) {
  const auto found = find_written(request.ns, request.rank, request.pages.items);
  if (!found)
    return tl::unexpected<error>(found.error());
  auto& ns = found->keys;
  namespaces_.advance_history(now);
  finish_reply reply;
  reply.results.items.reserve(request.pages.size());
  for (std::size_t i = 0; i < request.pages.size(); ++i) {
    const auto& page = request.pages[i];
    const auto entry = ns.table().refresh(found_[i], page.key);
    const auto cell = entry != no_entry ? ns.table().page(entry, request.rank) : page_cell{};
    auto code = errc::not_found;
    if (cell.live() && cell.where() == page.where) {
      ns.invalidate(entry, request.rank, namespaces_.clock().now(now), true);
      ns.note(page.key, key_event::damaged, request.rank);
      ++invalidated_[static_cast<std::size_t>(request.tier(i))];
      code = errc::ok;
    } else if (cell.live() || cell.reserved()) {
      code = errc::stale;
    }
    reply.results.items.push_back(byte_of(code));
  }
  return reply;
}

result<result_codes> shard_writes::drop_pages(const dropped_pages_request& request, timestamp now) {
  const auto found = namespaces_.find_rank(request.ns, request.rank);
  if (!found)
    return namespaces_.refuse(found.error());
  auto& ns = found->keys;
  namespaces_.advance_history(now);
  keys_.clear();
  for (const auto& page : request.pages)
    keys_.push_back(page.key);
  found_.resize(keys_.size());
  ns.table().find(keys_, found_);
  result_codes reply;
  reply.results.items.reserve(keys_.size());
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto where = request.pages[i].where;
    const auto entry = ns.table().refresh(found_[i], keys_[i]);
    const auto cell = entry != no_entry ? ns.table().page(entry, request.rank) : page_cell{};
    auto code = errc::ok;
    if (cell.live() && cell.where() == where)
      ns.invalidate(entry, request.rank, namespaces_.clock().now(now), false);
    else if (cell.reserved() && reservations_.page(cell.reserved_page()).where == where)
      end_shared(cell.reserved_page());
    else
      code = errc::not_found;
    if (code == errc::ok)
      ns.note(keys_[i], key_event::dropped, request.rank);
    reply.results.items.push_back(byte_of(code));
  }
  return reply;
}

std::optional<key_page> shard_writes::page_of(page_cell cell, rank_number rank) const {
  if (cell.live())
    return key_page{rank, key_page::use::live, cell.where()};
  if (!cell.reserved())
    return std::nullopt;
  const auto& page = reservations_.page(cell.reserved_page());
  if (!reservations_.of_page(cell.reserved_page()).shareable())
    return key_page{rank, key_page::use::reserved, page.where};
  return key_page{rank, page.shared != 0 ? key_page::use::shared : key_page::use::allocated, page.where};
}

} // namespace troupe
