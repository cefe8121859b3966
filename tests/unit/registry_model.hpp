#pragma once

#include "tests/unit/registry_slot_client_support.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

/// A naive model of a shard: maps, and a full search for each request. The tests that compare it with a real shard
/// decide who sends requests, with tickets or as slot clients.

namespace troupe::test {

constexpr std::uint32_t most_ranks = 3;
constexpr std::uint32_t slots_per_rank = 14;

/// Time in whole ticks of coarse time: then the model needs no rounding.
using ticks = std::int64_t;

inline duration span_of(ticks n) {
  return coarse_clock::tick * n;
}

struct model_page {
  /// Waiting and allocated for a slot client, reserved for a writer with a ticket, which may wait as well.
  enum kind { none, waiting, allocated, reserved, live } state = none;
  /// The generation is 0 while slots are being requested.
  slot_ref where;
  bool shared = false;
  ticks deadline = 0;
  plan_id plan = 0;
  /// The writer, if it has a ticket.
  std::pair<ticket, rank_number> writer{};
};

struct model_key {
  key_digest parent;
  model_page pages[most_ranks];
};

struct model_lease {
  ticks deadline = 0;
  /// The leased keys in the order in which they were leased, each once.
  keys_t keys;

  bool holds(const key_digest& key) const { return std::find(keys.begin(), keys.end(), key) != keys.end(); }
};

struct model_withheld {
  key_digest key;
  rank_number rank = 0;
  slot_ref where;
  ticks until = 0; // 0: not protected
  bool leased = false;
  bool was_live = true;
  bool suspect = false;
};

struct notified {
  std::multiset<std::tuple<rank_number, slot_ref>> publish, abort, unused, release, suspect;
  bool operator==(const notified&) const = default;

  void add(const slots_to_allocator& part) {
    for (const auto& [batch, to] :
         {std::pair{&part.publish, &publish}, std::pair{&part.abort, &abort}, std::pair{&part.unused, &unused},
          std::pair{&part.release, &release}, std::pair{&part.suspect, &suspect}})
      for (const auto& where : batch->slots)
        to->insert({part.rank, where});
  }
};

inline location answer(errc code, slot_ref where = {}) {
  return {where, static_cast<std::uint32_t>(code)};
}

class naive_shard {
public:
  model_page* page(const key_digest& key, rank_number rank) {
    const auto found = keys_.find(key);
    return found == keys_.end() ? nullptr : &found->second.pages[rank];
  }
  model_page::kind state(const key_digest& key, rank_number rank) {
    const auto* p = page(key, rank);
    return p == nullptr ? model_page::none : p->state;
  }
  std::uint32_t count(const key_digest& key, model_page::kind what) const {
    const auto found = keys_.find(key);
    if (found == keys_.end())
      return 0;
    return static_cast<std::uint32_t>(std::count_if(std::begin(found->second.pages), std::end(found->second.pages),
                                                    [&](const model_page& p) { return p.state == what; }));
  }
  std::int32_t children(const key_digest& key) const {
    return static_cast<std::int32_t>(
        std::count_if(keys_.begin(), keys_.end(), [&](const auto& k) { return k.second.parent == key; }));
  }
  std::uint32_t leases_on(const key_digest& key) const {
    return static_cast<std::uint32_t>(
        std::count_if(leases_.begin(), leases_.end(), [&](const auto& l) { return l.second.holds(key); }));
  }
  bool is_complete(const key_digest& key) const { return count(key, model_page::live) == ranks_.size(); }
  bool is_protected(const key_digest& key) const { return protected_.contains(key) && protected_.at(key) > time_; }
  void protect_until(const key_digest& key, ticks until) {
    protected_[key] = protected_.contains(key) ? std::max(protected_[key], until) : until;
  }
  bool evictable(const key_digest& key) const {
    return count(key, model_page::live) > 0 &&
           count(key, model_page::live) + count(key, model_page::none) == most_ranks && leases_on(key) == 0 &&
           children(key) == 0 && !is_protected(key);
  }

  void hold(const ticket& name, const keys_t& found, ticks deadline) {
    if (found.empty() && !leases_.contains(name))
      return;
    auto& l = leases_[name];
    l.deadline = std::max(l.deadline, deadline);
    for (const auto& key : found)
      if (!l.holds(key))
        l.keys.push_back(key);
  }

  /// Drops slots that only a lease held, keys without any holder, and the protection of missing keys.
  void settle() {
    std::vector<model_withheld> left;
    for (auto& w : withheld_) {
      if (w.leased && leases_on(w.key) == 0) {
        w.leased = false;
        if (w.until == 0) {
          (w.suspect ? notified_.suspect : notified_.release).insert({w.rank, w.where});
          continue;
        }
      }
      left.push_back(w);
    }
    withheld_ = left;
    std::erase_if(keys_, [&](const auto& k) {
      return leases_on(k.first) == 0 && count(k.first, model_page::none) == most_ranks;
    });
    std::erase_if(protected_, [&](const auto& p) { return !keys_.contains(p.first) && children(p.first) == 0; });
  }

  void drop_pages(const key_digest& key, rank_number rank) {
    auto& p = *page(key, rank);
    if (p.where.generation != 0)
      notified_.abort.insert({rank, p.where});
    p = {};
    settle();
  }

  /// The slot of a reservation that is given back by number: not before its time.
  void drop_later(const key_digest& key, rank_number rank) {
    auto& p = *page(key, rank);
    withheld_.push_back({key, rank, p.where, p.deadline, false, false, false});
    p = {};
    settle();
  }

  void unpublish(const key_digest& key, rank_number rank, bool suspect) {
    auto& p = *page(key, rank);
    const model_withheld w{key,  rank,   p.where, is_protected(key) ? protected_[key] : 0, leases_on(key) > 0,
                           true, suspect};
    if (w.leased || w.until > 0)
      withheld_.push_back(w);
    else
      (suspect ? notified_.suspect : notified_.release).insert({rank, p.where});
    p = {};
    settle();
  }

  void publish(const key_digest& key, rank_number rank) {
    auto& p = *page(key, rank);
    p.state = model_page::live;
    notified_.publish.insert({rank, p.where});
    ++published_;
  }

  std::uint64_t erase_one(const key_digest& key, rank_number rank) {
    std::uint64_t pages = 0;
    for (rank_number r = 0; r < most_ranks; ++r)
      if ((rank == all_ranks || rank == r) && state(key, r) == model_page::live) {
        unpublish(key, r, false);
        ++pages;
      }
    return pages;
  }

  /// Lets the real shard evict, and does as it did if that was allowed.
  void evict_as(registry_state& real, const namespace_id& ns, rank_number rank, std::uint32_t wanted, timestamp now) {
    std::set<key_digest> gone;
    for (const auto& [key, k] : keys_)
      if (count(key, model_page::live) > 0)
        gone.insert(key);
    const auto reply = real.evict({ns, rank, wanted}, now).value();
    real.for_each_key(ns, [&](const key_info& info) {
      if (info.live > 0)
        gone.erase(info.key);
    });
    std::uint32_t slots = 0;
    while (!gone.empty()) {
      const auto victim = std::find_if(gone.begin(), gone.end(), [&](const auto& key) { return evictable(key); });
      REQUIRE(victim != gone.end()); // in some order children first, and nothing that is held
      slots += state(*victim, rank) == model_page::live ? 1 : 0;
      erase_one(*victim, all_ranks);
      gone.erase(victim);
    }
    REQUIRE(reply.slots == slots);
    REQUIRE(slots <= wanted);
    if (!reply.more && slots < wanted)
      for (const auto& [key, k] : keys_)
        REQUIRE_FALSE(evictable(key));
    if (reply.more)
      REQUIRE(real.keys() > 0);
  }

  /// Compares a key with that of the real shard, as far as `info` shows it.
  void compare_key(const key_digest& key, const std::map<key_digest, key_info>& real) const {
    const bool known = keys_.contains(key);
    REQUIRE(real.contains(key) == (known || children(key) > 0));
    if (!real.contains(key))
      return;
    const auto& info = real.at(key);
    REQUIRE(info.ghost != known);
    REQUIRE(info.children == children(key));
    REQUIRE(info.leases == leases_on(key));
    REQUIRE(info.live == count(key, model_page::live));
    REQUIRE(info.reserved ==
            count(key, model_page::waiting) + count(key, model_page::allocated) + count(key, model_page::reserved));
    REQUIRE(info.parent == (known ? keys_.at(key).parent : key_digest{}));
  }

  // The allocators' part: which slots they have given out.

  std::vector<slot_ref> some_slots(rank_number rank, std::uint64_t n) {
    std::vector<slot_ref> slots;
    for (slot_number slot = 0; slot < slots_per_rank && slots.size() < n; ++slot)
      if (held_[rank].insert(slot).second)
        slots.push_back({slot, ++generations_[rank][slot]});
    return slots;
  }

  void take_back(const slots_to_allocator& part) {
    for (const auto* batch : {&part.abort, &part.unused, &part.release, &part.suspect})
      for (const auto& where : batch->slots)
        REQUIRE(held_[part.rank].erase(where.slot) == 1);
  }

  ticks time_ = 0;
  std::set<rank_number> ranks_;
  std::map<key_digest, model_key> keys_;
  std::map<key_digest, ticks> protected_;
  std::map<ticket, model_lease> leases_;
  std::vector<model_withheld> withheld_;
  notified notified_;
  std::uint64_t published_ = 0;
  std::set<slot_number> held_[most_ranks];
  std::map<slot_number, generation_number> generations_[most_ranks];
};

} // namespace troupe::test
