#pragma once

#include "actors/node/eviction/ghost_table.hpp"
#include "actors/node/eviction/listing_policy.hpp"
#include "actors/node/eviction/reuse_statistics.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace troupe {

/// A policy that evicts the entry of least worth first. It learns worth from how keys of the same class were used at
/// the same age: `reuse_statistics`.
///
/// A key's class is how often it was used, up to three times, including uses before its last eviction, and how many
/// keys its last request did not find. A conversation that continues brings few new keys; a long prompt that shares its
/// beginning with others brings many and seldom returns.
///
/// Each class has its entries in order of their last use. Worth rises and falls with age, because a user who chats with
/// a model does not send the next request at once. So the entry of least worth is at one of the two ends of its list.
/// Where it is the young end, a few entries are kept until their time comes, instead of all of them until shortly
/// before it. Each eviction compares the ends of all lists.
///
/// An entry rests at first: until some more keys were inserted, it is proposed only when there is no other. Otherwise a
/// key that is worth little could be evicted by the save that follows its own, or by the eviction that its own save has
/// begun, before its client asks for it.
///
/// In a cluster a key is followed on the node where it is used: a node that fetches the key follows it from then on; a
/// node that has or had it counts a use and stops following it. A fetched key is not a new one, so it does not advance
/// the policy's time.
///
/// 8 bytes per entry, 2 per evicted key, and at most 128 KiB for the sample.
class reuse_policy final : public listing_policy {
public:
  explicit reuse_policy(key_hash hash);

  void announced(std::span<const entry_index> entries, const entry_use& how) override;
  void used_elsewhere(std::uint64_t hash) override { statistics_.used_elsewhere(hash, now_); }
  std::optional<reuse_knowledge> knowledge() const override;
  void learn_from(const reuse_counts& others) override { statistics_.learn_from(others); }
  std::uint64_t resident_bytes() const noexcept override;

private:
  // A tag: two bits for how many keys were missing, two for how often the entry was used, one for whether it is
  // sampled.
  static constexpr std::uint32_t missing_mask = 3;
  static constexpr std::uint32_t most_uses = 3;
  static constexpr std::uint32_t uses_shift = 2;
  static constexpr std::uint32_t sampled = 16;

  static constexpr position classes = reuse_statistics::classes;
  static constexpr std::uint32_t marks_per_class = 32;

  /// Times at some positions of a list, from the oldest on: marks are nodes of their own, each behind the entries that
  /// were placed before it.
  struct time_marks {
    struct mark {
      position at = 0;
      std::uint64_t time = 0;
    };
    std::array<mark, marks_per_class> marks;
    std::uint32_t count = 0;
    /// Unused nodes are at the upper end.
    std::array<position, marks_per_class> unused;
    /// Approximate times of the oldest and the youngest entry: the time of the mark removed last at the old end, and
    /// that of the last placement, or of the mark removed last at the young end.
    std::uint64_t oldest = 0;
    std::uint64_t youngest = 0;
  };

  static std::uint32_t missing_class(std::uint64_t missing) noexcept;
  static position class_of(std::uint32_t tag) noexcept;

  void prepare(std::span<const entry_index> entries) override;
  void admit(position at, bool fetched) override;
  void place(position at) override;
  void use(position first, position last, const entry_use& how) override;
  void forget(position at, leave_reason why) override;
  std::size_t next(std::span<entry_index> out) override;

  /// Where entries are taken from a list: its old end, or those that are older than a node.
  struct list_end {
    std::optional<position> older_than;
    /// About when the first of them was placed.
    std::uint64_t time = 0;
  };
  /// The ends of a list that is not empty, of entries that were placed at least `rest` insertions ago.
  std::optional<list_end> old_end(position list, std::uint64_t rest) const;
  std::optional<list_end> young_end(position list, std::uint64_t rest) const;
  /// `next` of entries that have rested.
  std::size_t next_rested(std::span<entry_index> out, std::uint64_t rest) const;

  /// Called before an entry is placed at the young end.
  void mark_time(position list);
  void thin(time_marks& of);
  /// Removes marks from both ends.
  void trim(position list);
  void note(position at, std::uint32_t tag);
  /// Notes a use of an entry of the sample.
  void note_use(position at, std::uint32_t tag, const entry_use& how);

  key_hash hash_;
  ghost_table ghosts_;
  reuse_statistics statistics_;
  std::array<time_marks, classes> times_;
  /// Number of keys inserted, except those fetched from other nodes.
  std::uint64_t now_ = 0;
  std::uint64_t learn_at_ = 0;
};

std::unique_ptr<eviction_policy> make_reuse_policy(key_hash hash);

} // namespace troupe
