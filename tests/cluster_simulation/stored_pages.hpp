#pragma once

#include "base/clock.hpp"
#include "base/digest.hpp"
#include "base/identifiers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe::cluster_simulation {

/// The bytes of a page, reduced to a number that follows from all that they depend on.
using contents = std::uint64_t;

/// The pages of a node and who holds them, in the place of shards, allocators and io workers. Each key has a page for
/// each rank. When there are too many, keys without holders are evicted: those marked evict-first before others, the
/// oldest first.
class stored_pages {
public:
  explicit stored_pages(std::size_t keys_max, std::uint32_t ranks) : keys_max_(keys_max), ranks_(ranks) {}

  std::optional<contents> page(const namespace_id& ns, const key_digest& key, std::uint32_t rank) const {
    const auto found = keys_.find({ns, key});
    return found == keys_.end() ? std::nullopt : found->second.pages[rank];
  }

  /// `made`: a number that grows. `transient`: a key whose first page this is is evicted first once it has been read.
  void put(const namespace_id& ns, const key_digest& key, std::uint32_t rank, contents what, std::uint64_t made,
           bool transient = false) {
    auto& x = keys_[{ns, key}];
    if (x.pages.empty())
      x.transient = transient;
    x.pages.resize(ranks_);
    x.pages[rank] = what;
    x.made = made;
    x.used = ++clock_;
    make_room();
  }

  /// The known facts about a copy of a key.
  struct copy {
    std::uint64_t made = 0;
    bool evict_first = false;
    bool transient = false;
  };
  std::optional<copy> find(const namespace_id& ns, const key_digest& key) const {
    const auto found = keys_.find({ns, key});
    if (found == keys_.end())
      return std::nullopt;
    return copy{found->second.made, found->second.evict_first, found->second.transient};
  }
  /// An engine has read it.
  void read(const namespace_id& ns, const key_digest& key) {
    if (const auto found = keys_.find({ns, key}); found != keys_.end() && found->second.transient)
      found->second.evict_first = true;
  }
  void mark_evict_first(const namespace_id& ns, const key_digest& key) {
    if (const auto found = keys_.find({ns, key}); found != keys_.end())
      found->second.evict_first = true;
  }

  /// The number of leading keys that have pages of all ranks.
  std::uint32_t match(const namespace_id& ns, std::span<const key_digest> keys) {
    std::uint32_t out = 0;
    for (const auto& key : keys) {
      const auto found = keys_.find({ns, key});
      if (found == keys_.end())
        break;
      bool whole = true;
      for (const auto& page : found->second.pages)
        whole = whole && page.has_value();
      if (!whole)
        break;
      found->second.used = ++clock_;
      found->second.evict_first = false;
      ++out;
    }
    return out;
  }

  /// The keys that have pages of all ranks, in their order.
  std::vector<key_digest> match_each(const namespace_id& ns, std::span<const key_digest> keys) {
    std::vector<key_digest> out;
    for (const auto& key : keys)
      if (match(ns, {&key, 1}) == 1)
        out.push_back(key);
    return out;
  }

  struct lease {
    namespace_id ns;
    std::vector<key_digest> keys;
    timestamp made{};
    timestamp until{};
  };

  void hold(const ticket& name, lease x) {
    for (const auto& key : x.keys)
      ++keys_.at({x.ns, key}).holders;
    leases_.emplace(name, std::move(x));
  }
  void release(const ticket& name) {
    if (const auto found = leases_.find(name); found != leases_.end())
      end(found);
  }
  /// Keeps the lease on these keys only.
  void retain(const ticket& name, std::span<const key_digest> keys) {
    const auto found = leases_.find(name);
    if (found == leases_.end())
      return;
    auto kept = found->second;
    std::erase_if(kept.keys, [&](const key_digest& x) { return std::ranges::find(keys, x) == keys.end(); });
    for (const auto& key : kept.keys)
      ++keys_.at({kept.ns, key}).holders;
    end(found);
    leases_.emplace(name, std::move(kept));
  }
  void owner_is_gone(owner_id who) {
    for (auto i = leases_.begin(); i != leases_.end();)
      i = i->first.owner == who ? end(i) : std::next(i);
  }
  void look_at_clock(timestamp now) {
    for (auto i = leases_.begin(); i != leases_.end();)
      i = i->second.until <= now ? end(i) : std::next(i);
  }
  const std::map<ticket, lease>& leases() const noexcept { return leases_; }

  /// Drops one page, or all, of a key without holders.
  bool erase(const namespace_id& ns, const key_digest& key) {
    const auto found = keys_.find({ns, key});
    if (found == keys_.end() || found->second.holders > 0)
      return false;
    keys_.erase(found);
    return true;
  }
  void erase(const namespace_id& ns) {
    std::erase_if(leases_, [&](const auto& x) { return x.second.ns == ns; });
    std::erase_if(keys_, [&](const auto& x) { return x.first.first == ns; });
  }
  /// A node that ends has no leases any more; its pages it may keep.
  void restart(bool keeps_pages) {
    leases_.clear();
    if (!keeps_pages)
      keys_.clear();
    for (auto& [name, x] : keys_)
      x.holders = 0;
  }
  void set_room(std::size_t keys) { keys_max_ = keys; }

private:
  struct entry {
    std::vector<std::optional<contents>> pages;
    std::uint32_t holders = 0;
    std::uint64_t used = 0;
    std::uint64_t made = 0;
    bool evict_first = false;
    bool transient = false;
  };

  std::map<ticket, lease>::iterator end(std::map<ticket, lease>::iterator which) {
    for (const auto& key : which->second.keys)
      if (const auto found = keys_.find({which->second.ns, key}); found != keys_.end() && found->second.holders > 0)
        if (--found->second.holders == 0 && found->second.transient)
          found->second.evict_first = true;
    return leases_.erase(which);
  }
  void make_room() {
    while (keys_.size() > keys_max_) {
      auto oldest = keys_.end();
      for (auto i = keys_.begin(); i != keys_.end(); ++i)
        if (i->second.holders == 0 &&
            (oldest == keys_.end() || std::pair(!i->second.evict_first, i->second.used) <
                                          std::pair(!oldest->second.evict_first, oldest->second.used)))
          oldest = i;
      if (oldest == keys_.end())
        return;
      keys_.erase(oldest);
    }
  }

  std::size_t keys_max_;
  std::uint32_t ranks_;
  std::map<std::pair<namespace_id, key_digest>, entry> keys_;
  std::map<ticket, lease> leases_;
  std::uint64_t clock_ = 0;
};

} // namespace troupe::cluster_simulation
