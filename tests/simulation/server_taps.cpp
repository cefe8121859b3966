#include "io/page.hpp"
#include "tests/simulation/node_words.hpp"
#include "tests/simulation/server.hpp"
#include "tests/simulation/slot_text.hpp"

#include <algorithm>
#include <utility>

/// Handlers of the messages that pass the taps of a node.

namespace troupe::simulation {

namespace {

bool ok(std::uint8_t code) {
  return code == static_cast<std::uint8_t>(errc::ok);
}

} // namespace

// -- shards -----------------------------------------------------------------------------------------------------------

bool server::to_shard(std::uint32_t i, passing& x) {
  trace_message(world_, "to shard", i, x.content);
  may_go(x.content, 1);
  to_shard_of_evict_first(i, x);
  if (x.content.match_elements<owner_died_atom, owner_id>()) {
    book_.may_end(i, x.content.get_as<owner_id>(1));
    if (world_.has(defect::outlive_owner) || world_.has(defect::forget_death)) {
      book_.owner_died(i, x.content.get_as<owner_id>(1), world_.now());
      tap::answer(x, caf::message{});
      return false;
    }
  } else if (x.content.match_elements<dropped_pages_request>()) {
    return drops(x);
  } else if (x.content.match_elements<children_request>()) {
    const auto from = shard_of_sender(x.sender);
    if (from && world_.has(defect::late_children)) {
      held_children_.push_back({*from, i, std::move(x)});
      world_.schedule.after(duration::zero(), [this, from = *from] { send_held_children(from); });
      return false;
    }
    if (from)
      notified_of_children(*from);
  } else if (x.content.match_elements<evict_request>()) {
    const auto& wish = x.content.get_as<evict_request>(0);
    evictions_.asked(wish.rank, wish.wanted);
    if (world_.has(defect::evict_for_each))
      x.content.get_mutable_as<evict_request>(0).seen = evict_request::all;
  } else if (x.content.match_elements<invalidate_request>()) {
    // Clients report pages that they could not read.
    const auto& notified = x.content.get_as<invalidate_request>(0);
    const bool by_worker = notified.rank < ranks_.size() && x.sender &&
                           x.sender->id() == tap_of(ranks_[notified.rank].worker).behind()->id();
    for (std::size_t n = 0; by_worker && n < notified.reasons.size() && n < notified.pages.size(); ++n)
      if (static_cast<errc>(notified.reasons[n]) == errc::slab_damaged)
        frames_.lost(notified.rank, notified.pages[n].where);
      else
        finds_unsound(notified.rank, notified.pages[n]);
  } else if (x.content.match_elements<reserve_request>() && world_.has(defect::long_reservations)) {
    x.content.get_mutable_as<reserve_request>(0).expires_in *= 10;
  } else if (x.content.match_elements<release_request>()) {
    if (x.id.is_request())
      book_.may_end(i, x.content.get_as<release_request>(0).lease);
    if (const auto keep = x.content.get_as<release_request>(0).keep; keep > 0 && world_.has(defect::keep_one_more))
      x.content.get_mutable_as<release_request>(0).keep = keep + 1;
  }
  return true;
}

void server::finds_unsound(rank_number rank, const page_ref& page) {
  world_.count("worker finds an unsound page");
  // A page that a client has corrupted in memory is found there, whatever the disk has.
  const auto* store = ranks_[rank].store;
  if (store == nullptr || world_.p.nemesis.corrupt_memory || store->was_read_unsound(page.where))
    return;
  const io::page_identity is{ns_, page.key, rank, page.where, world_.p.ns.geometry.page_bytes()};
  if (pages_.is_committed(rank, page.key, page.where) &&
      io::verify_page(disks_[rank]->content(page.where), is) == errc::ok)
    world_.fail("scrub", text_of(rank, page.where) + " is reported as corrupt, and nothing else was read there");
}

void server::say_unsound(rank_number rank, const page_ref& page) {
  if (!running())
    return;
  invalidate_request notified{ns_, rank, {}, {}};
  notified.pages.items.push_back(page);
  notified.reasons.items.push_back(static_cast<std::uint8_t>(errc::identity_mismatch));
  caf::actor_cast<caf::strong_actor_ptr>(shards_[troupe::shard_of(page.key, world_.p.shards)])
      ->enqueue(tap_of(ranks_[rank].worker).behind(), caf::make_message_id(), caf::make_message(std::move(notified)),
                nullptr);
}

void server::may_go(const caf::message& x, int change) {
  const auto note = [&](const key_digest& key) {
    if ((may_go_[key] += change) == 0)
      may_go_.erase(key);
  };
  if (x.match_elements<erase_request>())
    for (const auto& key : x.get_as<erase_request>(0).keys)
      note(key);
  else if (x.match_elements<invalidate_request>())
    for (const auto& page : x.get_as<invalidate_request>(0).pages)
      note(page.key);
  else if (x.match_elements<dropped_pages_request>())
    for (const auto& page : x.get_as<dropped_pages_request>(0).pages)
      note(page.key);
}

bool server::drops(passing& x) {
  const auto& notified = x.content.get_as<dropped_pages_request>(0);
  if (world_.has(defect::silent_loss)) {
    may_go(x.content, -1);
    tap::answer(x, caf::make_message(result_codes{std::vector<std::uint8_t>(notified.pages.size(), 0)}));
    return false;
  }
  for (const auto& page : notified.pages) {
    const bool listed = pages_.is_committed(notified.rank, page.key, page.where);
    world_.count(listed ? "page is dropped" : "page is dropped before it is committed");
    if (auto wrong = asked_pages_.may_drop(notified.rank, page.where); !wrong.empty())
      world_.fail("asked", std::move(wrong));
    frames_.drops(notified.rank, page.where);
  }
  return true;
}

void server::evicted(std::uint32_t i, rank_number rank) {
  if (auto wrong = evictions_.answered(rank, !evicted_.empty()); !wrong.empty())
    world_.fail("evictions", std::move(wrong));
  evicted_on_.clear();
  for (const auto& key : std::exchange(evicted_, {})) {
    const auto wrong = [&](const std::string& why) {
      world_.fail("eviction", "key " + to_string(key) + " is evicted, and " + why);
    };
    if (const auto holder = book_.holder_of(i, key, world_.now()); !holder.empty())
      wrong(holder);
    if (const auto writer = pages_.writer_of(key); !writer.empty())
      wrong(writer);
    // Keys behind an evict-first key are found all the same, through the other node.
    if (evict_first_.may_be_evict_first(i, key, world_.now())) {
      world_.count("evicted page of a spare key");
      continue;
    }
    if (const auto x = children_elsewhere_[i].find(key); x != children_elsewhere_[i].end() && x->second > 0)
      wrong("its shard knows of " + std::to_string(x->second) + " children in others");
    for (const auto& [child, parent] : parents_)
      if (parent == key && !disputed_.contains(child) && troupe::shard_of(child, world_.p.shards) == i &&
          pages_.is_committed(child))
        wrong("its child " + to_string(child) + " is there");
  }
}

void server::notified_of_children(std::uint32_t from) {
  if (gave_back_in_[from] == world_.turn)
    world_.fail("order", "shard " + std::to_string(from) +
                             " notifies another one of removed children after it has released their slots");
}

void server::send_held_children(std::uint32_t from) {
  for (auto& x : std::exchange(held_children_, {}))
    if (x.from == from) {
      notified_of_children(from);
      tap_of(shards_[x.to]).pass(std::move(x.what));
    } else
      held_children_.push_back(std::move(x));
}

bool server::from_shard(std::uint32_t i, const passing& asked, caf::message& answer) {
  trace_message(world_, "from shard", i, answer);
  const auto& x = asked.content;
  may_go(x, -1);
  if (x.match_elements<reserve_request>())
    evict_first_.answered(x.get_as<reserve_request>(0).keys.items);
  if (x.match_elements<evict_request>())
    evicted(i, x.get_as<evict_request>(0).rank);
  else if (x.match_elements<children_request>())
    for (const auto& change : x.get_as<children_request>(0).changes)
      children_elsewhere_[i][change.parent] += change.delta;
  else if (x.match_elements<owner_died_atom, owner_id>())
    book_.owner_died(i, x.get_as<owner_id>(1), world_.now());
  else if (x.match_elements<match_request>() && answer.match_elements<match_reply>())
    matched(i, x.get_as<match_request>(0), answer.get_as<match_reply>(0));
  else if (x.match_elements<locate_request>() && answer.match_elements<locate_reply>())
    located(i, x.get_as<locate_request>(0), answer.get_as<locate_reply>(0));
  else if (x.match_elements<release_request>() && !answer.match_elements<caf::error>()) {
    const auto& released = x.get_as<release_request>(0);
    const auto keep = released.keep - (released.keep > 0 && world_.has(defect::keep_one_more) ? 1 : 0);
    // The first key that the lease holds no longer.
    if (const auto dropped = book_.key_of(i, released.lease, keep); keep > 0 && dropped)
      ask_who_holds(i, *dropped);
    kept_there(i, released);
    book_.released(i, released.lease, keep, world_.now());
  } else if (x.match_elements<reserve_request>() && answer.match_elements<reserve_reply>())
    reserved(i, x.get_as<reserve_request>(0), answer.get_as<reserve_reply>(0));
  else if (x.match_elements<commit_atom, finish_request>() && answer.match_elements<finish_reply>())
    committed(i, x.get_as<finish_request>(1), answer.get_as<finish_reply>(0));
  else if (x.match_elements<invalidate_request>() && answer.match_elements<finish_reply>()) {
    const auto& request = x.get_as<invalidate_request>(0);
    const auto& results = answer.get_as<finish_reply>(0).results;
    for (std::size_t n = 0; n < results.size(); ++n)
      if (ok(results[n]))
        unpublished(i, request.rank, request.pages[n].key, request.pages[n].where);
  } else if (x.match_elements<dropped_pages_request>() && answer.match_elements<result_codes>()) {
    const auto& request = x.get_as<dropped_pages_request>(0);
    const auto& results = answer.get_as<result_codes>(0).results;
    for (std::size_t n = 0; n < results.size(); ++n)
      if (const auto& page = request.pages[n];
          ok(results[n]) && pages_.is_committed(request.rank, page.key, page.where))
        pages_.unpublished(request.rank, page.key); // its slot is still held
  } else if (x.match_elements<erase_request>() && answer.match_elements<result_codes>()) {
    const auto& request = x.get_as<erase_request>(0);
    for (const auto& key : request.keys)
      pages_.unpublished(request.rank, key);
  }
  return true;
}

void server::matched(std::uint32_t i, const match_request& x, const match_reply& reply) {
  const auto found = std::min<std::size_t>(reply.matched, x.keys.size());
  const auto lease_for = std::min(x.lease_for, world_.p.lease_max);
  book_.taken(i, x.lease, std::span(x.keys.items).first(found), lease_for, world_.now());
  used(i, x.lease, std::span(x.keys.items).first(found));
  if (world_.has(defect::forget_lease) && found > 0 && random_.one_in(4))
    tap_of(shards_[i])
        .behind()
        ->get()
        ->enqueue(nullptr, caf::make_message_id(), caf::make_message(release_request{ns_, x.lease, 0}), nullptr);
}

void server::located(std::uint32_t i, const locate_request& x, const locate_reply& reply) {
  std::vector<key_digest> found;
  for (std::size_t n = 0; n < reply.locations.size(); ++n)
    if (reply.locations[n].code() == errc::ok)
      found.push_back(x.keys[n]);
    else
      world_.judge("lost", pages_.missed(x.rank, x.keys[n]));
  book_.taken(i, x.lease, found, std::min(x.lease_for, world_.p.lease_max), world_.now());
  used(i, x.lease, found);
  for (std::size_t n = 0; n < reply.locations.size(); ++n) {
    const auto& at = reply.locations[n];
    if (at.code() != errc::ok)
      continue;
    book_.notified(i, x.lease, x.rank, {x.keys[n], at.where});
    world_.judge("commits", pages_.located(x.rank, x.keys[n], at.where));
    if (auto wrong = frames_.stored(x.rank, at.where); !wrong.empty())
      world_.fail("commits", text_of(x.rank, at.where) + " is given to a reader, and " + wrong);
  }
  if (world_.has(defect::forget_lease) && !found.empty() && random_.one_in(4))
    tap_of(shards_[i])
        .behind()
        ->get()
        ->enqueue(nullptr, caf::make_message_id(), caf::make_message(release_request{ns_, x.lease, 0}), nullptr);
}

void server::reserved(std::uint32_t i, const reserve_request& x, const reserve_reply& reply) {
  const auto asked_for = x.expires_in / (world_.has(defect::long_reservations) ? 10 : 1);
  book_.reserved(i, x.ticket, world_.now() + std::min<duration>(asked_for, world_.p.reservation_max));
  for (std::size_t n = 0; n < reply.results.size(); ++n) {
    if (reply.results[n].code() == errc::ok)
      world_.judge("slots", pages_.reserved(x.rank, x.keys[n], reply.results[n].where));
    // A key that occurs twice has the first one's parent. Where a path has a key twice, the key after it has another
    // parent than elsewhere, and the first one that was named, whenever that was, is right.
    const auto parent = n < x.parents.size() ? x.parents[n] : key_digest{};
    if (!said_parents_.emplace(std::pair(x.ticket, x.keys[n]), parent).second || parent.is_null())
      continue;
    if (first_parents_.emplace(x.keys[n], parent).first->second != parent)
      disputed_.insert(x.keys[n]);
  }
}

void server::committed(std::uint32_t i, const finish_request& x, const finish_reply& reply) {
  for (std::size_t n = 0; n < reply.results.size(); ++n) {
    if (!ok(reply.results[n]))
      continue;
    const auto& page = x.pages[n];
    const bool is_new = !pages_.is_committed(page.key);
    if (!pages_.committed(x.rank, page))
      continue; // asked again, and answered as before
    const bool transient = x.origin == page_origin::transient || transient_left_out_.contains(x.ticket);
    world_.count(transient ? "committed page of a transient key" : "committed page of a client");
    evict_first_.committed(i, page.key, is_new, transient, world_.now(), noticed_before());
    if (const auto said = said_parents_.find({x.ticket, page.key});
        said != said_parents_.end() && !said->second.is_null())
      parents_.emplace(page.key, said->second);
    else if (is_new)
      parents_.erase(page.key);
    world_.count("committed page");
    if (auto wrong = frames_.stored(x.rank, page.where); !wrong.empty())
      world_.fail("commits", text_of(x.rank, page.where) + " is committed, and " + wrong);
    if (auto wrong = book_.committed(i, x.ticket, world_.now()); !wrong.empty())
      world_.fail("reservations", text_of(x.rank, page.where) + " is committed, and " + wrong);
  }
}

void server::unpublished(std::uint32_t i, rank_number rank, const key_digest& key, slot_ref where) {
  pages_.unpublished(rank, key);
  if (world_.has(defect::reuse_leased) && !book_.reader_of(i, rank, where, world_.now()).empty())
    hear(rank, word::release, {where});
}

// -- allocators -------------------------------------------------------------------------------------------------------

bool server::to_allocator(rank_number rank, passing& x) {
  trace_message(world_, "to allocator", rank, x.content);
  if (!is_word_of_slots(x.content))
    return true;
  const bool publish = x.content.match_elements<publish_page_atom, slot_batch>();
  const bool abort = x.content.match_elements<abort_atom, slot_batch>();
  const auto from = shard_of_sender(x.sender);
  if (!publish && from)
    gave_back_in_[*from] = world_.turn;
  if (abort && world_.has(defect::lose_abort) && random_.one_in(4))
    return false;
  if (world_.has(defect::unordered) && publish && !late_word_ && random_.one_in(4)) {
    late_word_.emplace(rank, std::move(x));
    return false;
  }
  hear(rank,
       publish ? word::publish
       : abort ? word::abort
               : word::release,
       x.content.get_as<slot_batch>(1).slots.items);
  if (!publish && from && world_.has(defect::late_children)) {
    tap_of(ranks_[rank].allocator).pass(std::move(x));
    send_held_children(*from);
    return false;
  }
  if (!late_word_ || late_word_->first != rank)
    return true;
  tap_of(ranks_[rank].allocator).pass(std::move(x));
  auto late = std::move(late_word_->second);
  late_word_.reset();
  hear(rank, word::publish, late.content.get_as<slot_batch>(1).slots.items);
  tap_of(ranks_[rank].allocator).pass(std::move(late));
  return false;
}

void server::hear(rank_number rank, word what, const std::vector<slot_ref>& slots) {
  if (what == word::publish)
    return world_.judge("slots", pages_.published(rank, slots));
  if (what == word::abort)
    return world_.judge("slots", pages_.aborted(rank, slots));
  for (const auto& where : slots)
    for (std::uint32_t i = 0; i < shards_.size(); ++i)
      if (auto reader = book_.reader_of(i, rank, where, world_.now()); !reader.empty())
        world_.fail("leases", text_of(rank, where) + " is given back, and " + reader);
  for (const auto& where : slots)
    if (const auto key = pages_.key_at(rank, where);
        key && pages_.is_committed(rank, *key, where) && !may_go_.contains(*key)) {
      world_.count("evicted page");
      evicted_.push_back(*key);
      evicted_on_.emplace(rank, *key);
      // A key without a page on every rank does not free a slot on every rank, and no engine finds it.
      if (!is_on_other_ranks(rank, *key))
        continue;
      evictions_.evicted(rank);
      evictions_.heard(rank);
    }
  world_.judge("slots", pages_.released(rank, slots));
}

bool server::is_on_other_ranks(rank_number rank, const key_digest& key) const {
  for (rank_number other = 0; other < world_.p.ranks; ++other)
    if (other != rank && !evicted_on_.contains({other, key}) && pages_.missed(other, key).empty())
      return false;
  return true;
}

bool server::from_allocator(rank_number rank, const passing& asked, caf::message& answer) {
  judge_word(world_, asked, answer);
  if (!answer.match_elements<take_reply>())
    return true;
  const auto& granted = answer.get_as<take_reply>(0);
  note_granted(world_, rank, asked, granted);
  world_.judge("slots", pages_.granted(rank, granted.slots.items));
  if (world_.has(defect::abandon_slots) && random_.one_in(16))
    answer = caf::make_message(caf::make_error(caf::sec::request_timeout));
  return true;
}

} // namespace troupe::simulation
