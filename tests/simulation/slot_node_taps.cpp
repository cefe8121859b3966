#include "tests/simulation/node_words.hpp"
#include "tests/simulation/slot_node.hpp"

#include <algorithm>
#include <utility>

/// Handlers of the messages that pass the taps of a node that serves slot clients.

namespace troupe::simulation {

// -- shards -----------------------------------------------------------------------------------------------------------

bool slot_node::to_shard(std::uint32_t i, passing& x) {
  trace_message(world_, "to shard", i, x.content);
  if (!serving_ && x.sender && x.id.is_request())
    waiting_[{x.sender->id(), x.id.integer_value()}] = x;
  promises_.asked(x, world_.now());
  if (world_.has(defect::long_reservations) && x.content.match_elements<allocate_request>())
    x.content.get_mutable_as<allocate_request>(0).expires_in *= 2;
  if (x.content.match_elements<add_rank_request>()) {
    auto& rank = x.content.get_mutable_as<add_rank_request>(0);
    slots_[rank.rank] = rank.slots;
    if (rank.allocator)
      rank.allocator = known_allocator(rank.rank, rank.allocator);
  } else if (x.content.match_elements<add_namespace_request>() && !serving_ && kind_ == run_kind::taken_name) {
    tap::answer(x, caf::make_message(to_caf(error{errc::identity_mismatch, "the name was taken, for a moment"})));
    return false;
  }
  return true;
}

bool slot_node::from_shard(std::uint32_t i, const passing& asked, caf::message& answer) {
  trace_message(world_, "from shard", i, answer);
  if (asked.sender)
    waiting_.erase({asked.sender->id(), asked.id.integer_value()});
  world_.judge("reservations", promises_.answered(asked, answer, world_.now()));
  const auto& x = asked.content;
  if (x.match_elements<allocate_request>() && answer.match_elements<reserve_reply>()) {
    const auto& request = x.get_as<allocate_request>(0);
    const auto& results = answer.get_as<reserve_reply>(0).results;
    for (std::size_t n = 0; n < results.size(); ++n)
      if (results[n].code() == errc::ok)
        world_.judge("slots", pages_.reserved(request.rank, request.keys[n], results[n].where));
      else if (results[n].code() == errc::exists)
        world_.judge("slots", pages_.notified(request.rank, request.keys[n], results[n].where));
  } else if (x.match_elements<protect_request>() && answer.match_elements<locate_reply>()) {
    const auto& request = x.get_as<protect_request>(0);
    const auto& found = answer.get_as<locate_reply>(0).locations;
    for (std::size_t n = 0; n < found.size(); ++n)
      if (found[n].code() == errc::ok)
        world_.judge("slots", pages_.notified(request.rank, request.keys[n], found[n].where));
  } else if (x.match_elements<restore_request>() && answer.match_elements<result_codes>())
    restored(x.get_as<restore_request>(0), answer.get_as<result_codes>(0));
  else if (x.match_elements<drop_restored_request>())
    world_.fail("restart", "two pages of the store have one slot");
  else if (answer.match_elements<evict_reply>())
    world_.count("evicted slot", answer.get_as<evict_reply>(0).slots);
  return true;
}

void slot_node::restored(const restore_request& asked, const result_codes& answer) {
  for (std::size_t n = 0; n < answer.results.size(); ++n) {
    const auto& page = asked.pages[n];
    if (static_cast<errc>(answer.results[n]) != errc::ok) {
      world_.fail("restart",
                  "a stored page is refused: " + std::string(to_string(static_cast<errc>(answer.results[n]))));
      continue;
    }
    world_.count("store: restored page");
    world_.judge("restart", pages_.restored(page.rank, page.key, page.where));
    restored_.insert({page.key, page.rank, page.where.slot});
    if (disks_[page.rank].content(page.where.slot) != page.key)
      world_.fail("restart",
                  "key " + to_string(page.key) + " comes back from the store with a page that is not its own");
  }
}

// -- allocators -------------------------------------------------------------------------------------------------------

allocator_actor slot_node::known_allocator(rank_number rank, const allocator_actor& real) {
  auto& r = ranks_[rank];
  if (r.real != real) {
    if (r.real) {
      if (!r.resting.empty())
        world_.count("rank: replaced beside late writers");
      pages_.forget(rank);
      promises_.forget(rank);
      r.resting.clear();
    }
    r.real = real;
    // Messages to and from an actor that has been replaced do not count any more.
    r.allocator =
        put_tap(in_->system(), real,
                {[this, rank, id = real.id()](passing& x) { return !serves(rank, id) || to_allocator(rank, x); },
                 [this, rank, id = real.id()](const passing& x, caf::message& a) {
                   return !serves(rank, id) || from_allocator(rank, x, a);
                 }});
    taps_.push_back(caf::actor_cast<caf::strong_actor_ptr>(r.allocator));
  }
  return r.allocator;
}

bool slot_node::serves(rank_number rank, caf::actor_id real) const {
  return ranks_[rank].real && ranks_[rank].real.id() == real;
}

bool slot_node::to_allocator(rank_number rank, passing& x) {
  trace_message(world_, "to allocator", rank, x.content);
  if (!is_word_of_slots(x.content))
    return true;
  if (world_.has(defect::forget_quiesce))
    x.content.get_mutable_as<slot_batch>(1).rest = false;
  const auto& batch = x.content.get_as<slot_batch>(1);
  if (x.content.match_elements<publish_page_atom, slot_batch>()) {
    world_.judge("slots", pages_.published(rank, batch.slots.items));
    return true;
  }
  world_.judge("slots", x.content.match_elements<abort_atom, slot_batch>() ? pages_.aborted(rank, batch.slots.items)
                                                                           : pages_.released(rank, batch.slots.items));
  given_back(rank, batch);
  return true;
}

void slot_node::given_back(rank_number rank, const slot_batch& batch) {
  world_.count(batch.rest ? "slot: rests" : "slot: free at once", batch.slots.size());
  const auto until = world_.now() + (batch.rest ? p_.rest : duration::zero());
  for (const auto& where : batch.slots)
    ranks_[rank].resting[where.slot] = {where, until};
}

bool slot_node::from_allocator(rank_number rank, const passing& asked, caf::message& answer) {
  judge_word(world_, asked, answer);
  if (!answer.match_elements<take_reply>())
    return true;
  const auto& reply = answer.get_as<take_reply>(0);
  note_granted(world_, rank, asked, reply);
  granted(rank, reply.slots.items);
  return true;
}

void slot_node::granted(rank_number rank, const std::vector<slot_ref>& slots) {
  auto& resting = ranks_[rank].resting;
  for (const auto& x : slots)
    if (const auto found = resting.find(x.slot); found != resting.end() && found->second.until <= world_.now()) {
      world_.judge("slots", pages_.fenced(rank, {&found->second.where, 1}));
      resting.erase(found);
    }
  world_.judge("slots", pages_.granted(rank, slots));
}

} // namespace troupe::simulation
