#pragma once

#include "tests/unit/registry_slot_client_support.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

/// What a shard has to do for slot clients, in the most naive way: maps, and a search through all of it for
/// each question.

namespace troupe::test {

constexpr std::uint32_t most_ranks = 3;
constexpr std::uint32_t slots_per_rank = 14;
constexpr std::uint64_t universe = 24;

/// Time in whole ticks of coarse time: then the model needs no rounding.
using ticks = std::int64_t;

inline duration span_of(ticks n) {
  return coarse_clock::tick * n;
}

struct model_page {
  enum kind { none, waiting, allocated, reserved, live } state = none;
  slot_ref where;
  bool shared = false;
  ticks deadline = 0;
  plan_id plan = 0;
};

struct model_key {
  key_digest parent;
  model_page pages[most_ranks];
};

struct model_lease {
  ticks deadline = 0;
  std::set<key_digest> keys;
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

struct model_plan {
  rank_number rank = 0;
  ticks lasts = 0;
  keys_t keys;
  std::vector<location> answers;
};

struct told {
  std::multiset<std::tuple<rank_number, slot_ref>> publish, abort, unused, release, suspect;
  bool operator==(const told&) const = default;
};

inline location answer(errc code, slot_ref where = {}) {
  return {where, static_cast<std::uint32_t>(code)};
}

class slot_client_model {
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
        std::count_if(leases_.begin(), leases_.end(), [&](const auto& l) { return l.second.keys.contains(key); }));
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

  /// Slots that only a lease held; keys that nothing holds; the protection of what is not there.
  void settle() {
    std::vector<model_withheld> left;
    for (auto& w : withheld_) {
      if (w.leased && leases_on(w.key) == 0) {
        w.leased = false;
        if (w.until == 0) {
          (w.suspect ? told_.suspect : told_.release).insert({w.rank, w.where});
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

  void give_up(const key_digest& key, rank_number rank) {
    auto& p = *page(key, rank);
    if (p.where.generation != 0)
      told_.abort.insert({rank, p.where});
    p = {};
    settle();
  }

  /// The slot of a reservation that is given back by number: not before its time.
  void give_up_later(const key_digest& key, rank_number rank) {
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
      (suspect ? told_.suspect : told_.release).insert({rank, p.where});
    p = {};
    settle();
  }

  void publish(const key_digest& key, rank_number rank) {
    auto& p = *page(key, rank);
    p.state = model_page::live;
    told_.publish.insert({rank, p.where});
    ++published_;
  }

  ticks time_ = 0;
  std::set<rank_number> ranks_;
  std::map<key_digest, model_key> keys_;
  std::map<key_digest, ticks> protected_;
  std::map<ticket, model_lease> leases_;
  std::vector<model_withheld> withheld_;
  std::map<plan_id, model_plan> plans_;
  std::map<ticket, std::pair<key_digest, rank_number>> reserved_;
  told told_;
  std::uint64_t published_ = 0;
};

} // namespace troupe::test
