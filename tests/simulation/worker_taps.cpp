#include "io/page.hpp"
#include "tests/simulation/node_words.hpp"
#include "tests/simulation/server.hpp"
#include "tests/simulation/slot_text.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

/// Handlers of the messages that pass the taps before io workers.

namespace troupe::simulation {

template <class... Ts>
void server::notify_worker(rank_number rank, Ts&&... what) {
  tap_of(ranks_[rank].worker)
      .behind()
      ->get()
      ->enqueue(nullptr, caf::make_message_id(), caf::make_message(std::forward<Ts>(what)...), nullptr);
}

// -- to the worker ----------------------------------------------------------------------------------------------------

bool server::to_worker(rank_number rank, passing& x) {
  trace_message(world_, "to worker", rank, x.content);
  const auto& what = x.content;
  if (what.match_elements<owner_died_atom, owner_id>())
    return owner_died(rank, x);
  if (what.match_elements<owner_quiesced_atom, owner_id>())
    return owner_quiesces(rank, x);
  if (what.match_elements<place_atom, owner_id, frame_request>() ||
      what.match_elements<fetch_atom, owner_id, frame_request>()) {
    asked_[{x.sender->id(), x.id.integer_value()}] = frames_.asks(what.get_as<owner_id>(1));
    if (what.match_elements<fetch_atom, owner_id, frame_request>())
      asked_pages_.fetches(rank, {x.sender->id(), x.id.integer_value()}, what.get_as<frame_request>(2).pages.items);
    return true;
  }
  if (what.match_elements<prefetch_request>() || what.match_elements<prefetch_end>())
    return tells_of_lease(rank, x);
  if (what.match_elements<fill_atom, owner_id, fill_request>()) {
    frames_.fills(rank, what.get_as<owner_id>(1), what.get_as<fill_request>(2));
    return true;
  }
  if (what.match_elements<unpin_atom, owner_id, pin_number>())
    return ends_pin(rank, x);
  if (what.match_elements<fence_atom, slot_batch>())
    return fences(rank, x);
  if (what.match_elements<lend_atom, std::uint32_t>())
    return assigns(rank, x);
  if (what.match_elements<give_back_atom, bool, duration>())
    return asks_back(rank, x);
  return true;
}

bool server::assigns(rank_number rank, passing& x) {
  const auto number = x.content.get_as<std::uint32_t>(1);
  memory_.handed_over(rank, number);
  if (world_.has(defect::hand_to_two))
    for (rank_number other = 0; other < ranks_.size(); ++other)
      if (other != rank)
        notify_worker(other, lend_atom_v, number);
  return true;
}

bool server::asks_back(rank_number rank, passing&) {
  frames_.empties(rank);
  if (world_.has(defect::forget_dirty))
    if (const auto page = frames_.unwritten_page(rank, random_.next()))
      notify_worker(rank, fence_atom_v, slot_batch{std::vector{*page}});
  if (world_.has(defect::give_pinned))
    for (const bool fetch : {true, false})
      if (const auto pin = frames_.any_pin(rank, fetch, random_.next())) {
        if (fetch)
          notify_worker(rank, unpin_atom_v, pin->second, pin->first);
        else
          notify_worker(rank, fill_atom_v, pin->second, fill_request{pin->first, {}, world_.p.io_deadline});
      }
  return true;
}

bool server::owner_died(rank_number rank, passing& x) {
  if (world_.has(defect::forget_death)) {
    tap::answer(x, caf::message{});
    return false;
  }
  if (!world_.has(defect::quiesce_at_death))
    return true;
  const auto owner = x.content.get_as<owner_id>(1);
  tap_of(ranks_[rank].worker).pass(std::move(x));
  notify_worker(rank, owner_quiesced_atom_v, owner);
  return false;
}

bool server::owner_quiesces(rank_number rank, passing& x) {
  const auto owner = x.content.get_as<owner_id>(1);
  if (world_.has(defect::keep_pins)) {
    tap::answer(x, caf::message{});
    return false;
  }
  if (memory_.copies_of(owner) > 0)
    world_.fail("pins", "rank " + std::to_string(rank) + ": a client is reported as quiesced while " +
                            std::to_string(memory_.copies_of(owner)) + " copies of it are under way");
  frames_.rests(rank, owner);
  return true;
}

bool server::ends_pin(rank_number rank, passing& x) {
  const auto owner = x.content.get_as<owner_id>(1);
  const auto pin = x.content.get_as<pin_number>(2);
  const auto whose = frames_.owner_of(rank, pin);
  frames_.unpins(rank, owner, pin);
  if (world_.has(defect::foreign_pin) && whose && *whose != owner) {
    notify_worker(rank, unpin_atom_v, *whose, pin);
    frames_.unpinned(rank, owner, pin, true);
    tap::answer(x, caf::message{});
    return false;
  }
  if (world_.has(defect::lose_unpin) && random_.one_in(8)) {
    tap::answer(x, caf::message{});
    return false;
  }
  return true;
}

bool server::tells_of_lease(rank_number rank, passing& x) {
  if (x.content.match_elements<prefetch_request>()) {
    asked_pages_.notified(rank, x.content.get_as<prefetch_request>(0));
    return true;
  }
  const asked_ledger::message_name name{x.sender->id(), x.id.integer_value()};
  asked_pages_.ends(rank, name, x.content.get_as<prefetch_end>(0));
  if (!world_.has(defect::endless_prefetch))
    return true;
  asked_pages_.ended(name);
  tap::answer(x, caf::message{});
  return false;
}

bool server::fences(rank_number rank, passing& x) {
  const auto slots = x.content.get_as<slot_batch>(1).slots.items;
  if (world_.has(defect::free_orphan))
    for (const auto& where : slots)
      for (const auto& [pin, owner] : frames_.pins_on(rank, where))
        notify_worker(rank, unpin_atom_v, owner, pin);
  frames_.fences(rank, slots);
  const bool moving =
      std::any_of(slots.begin(), slots.end(), [&](const auto& where) { return disks_[rank]->transfers_of(where) > 0; });
  if (moving)
    world_.count("fence: waits for a transfer");
  if (std::any_of(slots.begin(), slots.end(), [&](const auto& where) { return disks_[rank]->is_promoted(where); }))
    world_.count("fence: of a page that is on its way into memory");
  const auto say_over = [&] {
    fence_is_over(rank, slots);
    tap::answer(x, caf::message{});
  };
  if (world_.has(defect::skip_fence)) {
    say_over();
    return false;
  }
  if (world_.has(defect::early_fence) && moving) {
    say_over();
    return true;
  }
  if (world_.has(defect::late_fence) && !moving) {
    say_over();
    world_.schedule.after(random_.skewed_time(std::chrono::milliseconds(1), std::chrono::seconds(1)),
                          [this, rank, what = x.content, run = run_] {
                            if (run == run_ && running())
                              notify_worker(rank, fence_atom_v, what.get_as<slot_batch>(1));
                          });
    return false;
  }
  if (world_.has(defect::keep_frame)) {
    auto nothing = x.content.get_as<slot_batch>(1);
    for (auto& where : nothing.slots.items)
      where.generation = 0;
    static_cast<asker*>(asker_->get())
        ->ask(tap_of(ranks_[rank].worker).behind(), caf::make_message(fence_atom_v, nothing),
              [this, rank, slots, asked = x](caf::message&) {
                fence_is_over(rank, slots);
                tap::answer(asked, caf::message{});
              });
    return false;
  }
  return true;
}

// -- from the worker --------------------------------------------------------------------------------------------------

bool server::from_worker(rank_number rank, const passing& asked, caf::message& answer) {
  trace_message(world_, "from worker", rank, answer);
  const auto& what = asked.content;
  const bool ok = !answer.match_elements<caf::error>();
  if (what.match_elements<fence_atom, slot_batch>()) {
    if (ok)
      fence_is_over(rank, what.get_as<slot_batch>(1).slots.items);
  } else if (what.match_elements<give_back_atom, bool, duration>()) {
    if (answer.match_elements<std::uint32_t>())
      memory_.given_back(rank, answer.get_as<std::uint32_t>(0));
    else
      world_.count("extent: kept");
  } else if (what.match_elements<lend_atom, std::uint32_t>()) {
    if (!answer.match_elements<bool>() || !answer.get_as<bool>(0))
      memory_.not_taken(rank, what.get_as<std::uint32_t>(1));
  } else if (what.match_elements<unpin_atom, owner_id, pin_number>()) {
    frames_.unpinned(rank, what.get_as<owner_id>(1), what.get_as<pin_number>(2), ok);
  } else if (what.match_elements<prefetch_end>()) {
    asked_pages_.ended({asked.sender->id(), asked.id.integer_value()});
  } else if (what.match_elements<fill_atom, owner_id, fill_request>()) {
    filled(rank, asked, answer);
  } else if (what.match_elements<place_atom, owner_id, frame_request>() ||
             what.match_elements<fetch_atom, owner_id, frame_request>()) {
    gave_frames(rank, asked, answer);
  }
  return true;
}

void server::filled(rank_number rank, const passing& asked, caf::message& answer) {
  const auto owner = asked.content.get_as<owner_id>(1);
  const auto& request = asked.content.get_as<fill_request>(2);
  if (!answer.match_elements<io_reply>()) {
    frames_.filled(rank, owner, request, std::nullopt);
    return;
  }
  if (world_.has(defect::stale_fill))
    for (auto& code : answer.get_mutable_as<io_reply>(0).results.items)
      if (code == static_cast<std::uint8_t>(errc::stale))
        code = static_cast<std::uint8_t>(errc::ok);
  frames_.filled(rank, owner, request, answer.get_as<io_reply>(0));
  if (world_.has(defect::write_unasked) && world_.p.memory.second_hit)
    if (const auto where = frames_.any_unwritten(rank))
      notify_worker(rank, prefetch_request{0, {1, 1}, 0, std::vector{*where}});
}

void server::gave_frames(rank_number rank, const passing& asked, caf::message& answer) {
  const asked_ledger::message_name name{asked.sender->id(), asked.id.integer_value()};
  const auto when = asked_.extract(name);
  const bool gave = answer.match_elements<frame_reply>();
  asked_pages_.fetched(name, gave ? &answer.get_as<frame_reply>(0) : nullptr);
  if (!answer.match_elements<frame_reply>()) {
    if (answer.match_elements<caf::error>())
      world_.count("frames refused", from_caf(answer.get_as<caf::error>(0)).code);
    return;
  }
  const auto owner = asked.content.get_as<owner_id>(1);
  const auto& request = asked.content.get_as<frame_request>(2);
  if (asked.content.match_elements<place_atom, owner_id, frame_request>()) {
    frames_.placed(rank, owner, when.mapped(), request, answer.get_as<frame_reply>(0));
    return;
  }
  if (world_.has(defect::double_flight))
    // Another frame with the same bytes, as from a second read.
    for (auto& x : answer.get_mutable_as<frame_reply>(0).frames.items)
      if (const auto other = frames_.idle_frame(rank); other && x.code() == errc::ok && random_.one_in(4)) {
        std::memcpy(frames_.bytes(*other).data(), frames_.bytes(x.offset).data(), slot_bytes_);
        x.offset = *other;
      }
  const auto& reply = answer.get_as<frame_reply>(0);
  frames_.fetched(rank, owner, when.mapped(), request, reply);
  if (world_.has(defect::drop_fetched) && world_.p.memory.second_hit && reply.pin != 0)
    for (std::size_t i = 0; i < request.pages.size(); ++i)
      if (reply.frames[i].code() == errc::ok && random_.one_in(4))
        static_cast<asker*>(asker_->get())
            ->ask(caf::actor_cast<caf::strong_actor_ptr>(shards_[shard_of(request.pages[i].key, world_.p.shards)]),
                  caf::make_message(dropped_pages_request{ns_, rank, std::vector{request.pages[i]}}),
                  [](caf::message&) {});
}

void server::fence_is_over(rank_number rank, const std::vector<slot_ref>& slots) {
  for (const auto& where : slots)
    if (disks_[rank]->transfers_of(where) > 0)
      world_.fail("fence", text_of(rank, where) + " is reported as quiesced, and is transferred");
  frames_.fenced(rank, slots);
  world_.judge("slots", pages_.fenced(rank, slots));
}

} // namespace troupe::simulation
