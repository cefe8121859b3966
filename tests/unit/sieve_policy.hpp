#pragma once

#include "actors/node/eviction/eviction_policy.hpp"

#include <deque>
#include <list>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace troupe::test {

/// SIEVE (Zhang et al., NSDI 2024) with the ghosts of S3-FIFO (Yang et al., SOSP 2023), a policy that tests what the
/// interface must support beyond recency. A hand moves from the oldest entry to the youngest and starts again. It skips
/// an entry once that was used since it last passed, and proposes all others. A key that returns soon after its
/// eviction counts as used. The containers are simple, since it is not shipped.
class sieve_policy final : public eviction_policy {
public:
  explicit sieve_policy(key_hash hash) : hash_(std::move(hash)) {}

  void inserted(std::span<const entry_index> entries) override {
    // The order is reversed, so that the last key of a prefix is the oldest and is evicted first.
    for (auto i = entries.size(); i-- > 0;) {
      const bool known = ghosts_.contains(hash_(entries[i]));
      places_[entries[i]] = order_.insert(order_.end(), {entries[i], known});
    }
  }

  void announced(std::span<const entry_index>, const entry_use&) override {}

  void touched(std::span<const entry_index> entries, const entry_use&) override {
    for (const auto entry : entries)
      places_.at(entry)->used = true;
  }

  void left(entry_index entry, leave_reason why) override {
    const auto place = places_.at(entry);
    if (place == hand_)
      ++hand_;
    order_.erase(place);
    places_.erase(entry);
    if (why == leave_reason::evicted)
      remember(hash_(entry));
  }

  std::size_t propose(std::span<entry_index> out) override {
    std::size_t n = 0;
    // It goes around at most twice: an entry that is skipped the first time is not skipped the second time.
    for (auto steps = 2 * order_.size(); steps > 0 && n < std::min(out.size(), order_.size()); --steps) {
      if (hand_ == order_.end())
        hand_ = order_.begin();
      if (!hand_->used)
        out[n++] = hand_->entry;
      hand_->used = !hand_->used;
      ++hand_;
    }
    return n;
  }

  void marked_evict_first(std::span<const entry_index> entries) override {
    for (const auto entry : entries)
      places_.at(entry)->used = false;
  }

  void kept(entry_index entry) override { places_.at(entry)->used = true; }

  void freed(entry_index entry) override {
    places_.at(entry)->used = false;
    order_.splice(hand_, order_, places_.at(entry));
    hand_ = places_.at(entry);
  }

  std::uint64_t size() const noexcept override { return order_.size(); }
  std::uint64_t resident_bytes() const noexcept override { return order_.size() * 64 + ghosts_.size() * 32; }

  void for_each(const std::function<void(entry_index)>& f) const override {
    for (const auto& x : order_)
      f(x.entry);
  }

  std::size_t ghosts() const { return ghosts_.size(); }

private:
  static constexpr std::size_t most_ghosts = 64;

  struct item {
    entry_index entry = 0;
    bool used = false;
  };

  void remember(std::uint64_t hash) {
    if (!ghosts_.insert(hash).second)
      return;
    ghost_order_.push_back(hash);
    if (ghost_order_.size() <= most_ghosts)
      return;
    ghosts_.erase(ghost_order_.front());
    ghost_order_.pop_front();
  }

  key_hash hash_;
  /// The oldest first.
  std::list<item> order_;
  std::unordered_map<entry_index, std::list<item>::iterator> places_;
  std::list<item>::iterator hand_ = order_.end();
  std::unordered_set<std::uint64_t> ghosts_;
  std::deque<std::uint64_t> ghost_order_;
};

inline std::unique_ptr<eviction_policy> make_sieve_policy(key_hash hash) {
  return std::make_unique<sieve_policy>(std::move(hash));
}

} // namespace troupe::test
