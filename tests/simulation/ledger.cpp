#include "tests/simulation/ledger.hpp"

#include <algorithm>
#include <array>

namespace troupe::simulation {

namespace {

std::string text_of(slot_ref where) {
  return "slot " + std::to_string(where.slot) + " generation " + std::to_string(where.generation);
}

void take_one(std::map<slot_ref, int>& from, slot_ref what) {
  const auto i = from.find(what);
  if (i != from.end() && --i->second == 0)
    from.erase(i);
}

} // namespace

void ledger::clear() {
  for (auto& r : ranks_)
    r = {};
}

void ledger::granted(rank_number rank, const std::vector<slot_ref>& slots) {
  for (const auto& x : slots)
    ++ranks_[rank].grants[x];
}

void ledger::grant_arrived(rank_number rank, const std::vector<slot_ref>& slots) {
  for (const auto& x : slots)
    take_one(ranks_[rank].grants, x);
}

void ledger::said(rank_number rank, slot_word word, const std::vector<slot_ref>& slots) {
  for (const auto& x : slots)
    ranks_[rank].words[x].push_back(word);
}

std::string ledger::heard(rank_number rank, slot_word word, const std::vector<slot_ref>& slots) {
  auto& words = ranks_[rank].words;
  for (const auto& x : slots) {
    const auto i = words.find(x);
    if (i == words.end() || i->second.front() != word)
      return "rank " + std::to_string(rank) + ": the allocator hears of " + text_of(x) + " out of order";
    i->second.pop_front();
    if (i->second.empty())
      words.erase(i);
  }
  return {};
}

void ledger::fencing(rank_number rank, const std::vector<slot_ref>& slots) {
  for (const auto& x : slots)
    ++ranks_[rank].fences[x];
}

void ledger::fenced(rank_number rank, const std::vector<slot_ref>& slots) {
  for (const auto& x : slots)
    take_one(ranks_[rank].fences, x);
}

bool ledger::at_rest() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const auto& r) { return r.grants.empty() && r.words.empty() && r.fences.empty(); });
}

std::string ledger::check_slot(const rank_record& r, slot_ref where, allocator_state::slot_state state,
                               const holding& held) const {
  using slot_state = allocator_state::slot_state;
  using page_use = registry_state::page_use;
  const bool granted = r.grants.contains(where);
  const auto words = r.words.find(where);
  const auto next = words == r.words.end() ? nullptr : &words->second;
  const bool known = held.generation == where.generation && state != slot_state::free;
  if (held.generation != 0 && !known)
    return "a shard holds generation " + std::to_string(held.generation);
  const bool fencing = r.fences.contains(where);
  if (fencing != (state == slot_state::quarantined))
    return fencing ? "it is being fenced and not in quarantine" : "it is in quarantine and nobody fences it";
  switch (state) {
  case slot_state::free:
    return granted || (next != nullptr) ? "it is free, and a message is under way that names it" : "";
  case slot_state::quarantined:
    return known || granted || (next != nullptr) ? "it is in quarantine, and somebody still has it" : "";
  case slot_state::live:
    if (granted)
      return "it is live, and granted in a message";
    if (next != nullptr)
      return *next == std::deque{slot_word::release} && !known ? "" : "it is live, and a message says something else";
    return known && held.use != page_use::reserved ? "" : "it is live at the allocator and at no shard";
  case slot_state::reserved:
    if (granted)
      return known || next != nullptr ? "it is granted in a message, and a shard has it already" : "";
    if (next == nullptr)
      return known && held.use == page_use::reserved ? "" : "it is reserved at the allocator and at no shard";
    if (*next == std::deque{slot_word::abort} || *next == std::deque{slot_word::publish, slot_word::release})
      return known ? "a shard has given it back, and still has it" : "";
    if (*next == std::deque{slot_word::publish})
      return known && held.use != page_use::reserved ? "" : "a shard has published it, and does not have it";
    return "a message says what cannot be said of a reserved slot";
  }
  return "it is in no state";
}

std::string ledger::check(const namespace_id& space, rank_number rank, std::uint32_t slots,
                          const allocator_state& allocator, std::span<const registry_state* const> shards) const {
  std::vector<holding> held(slots);
  std::string wrong;
  for (const auto& shard : shards)
    shard->for_each_slot(space, [&](rank_number of, slot_ref where, registry_state::page_use use) {
      if (of != rank)
        return;
      if (where.slot >= slots || held[where.slot].generation != 0)
        wrong = text_of(where) + " is held by two keys, or does not exist";
      else
        held[where.slot] = {where.generation, use};
    });
  for (slot_number slot = 0; wrong.empty() && slot < slots; ++slot) {
    const slot_ref where{slot, allocator.generation_of(slot)};
    wrong = check_slot(ranks_[rank], where, allocator.state_of(slot), held[slot]);
    if (!wrong.empty())
      wrong.insert(0, text_of(where) + ": ");
  }
  return wrong.empty() ? wrong : "rank " + std::to_string(rank) + ", conservation: " + wrong;
}

} // namespace troupe::simulation
