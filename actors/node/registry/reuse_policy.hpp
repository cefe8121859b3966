#pragma once

#include "actors/node/registry/ghost_table.hpp"
#include "actors/node/registry/listing_policy.hpp"
#include "actors/node/registry/reuse_statistics.hpp"

#include <array>
#include <cstdint>
#include <memory>

namespace troupe {

/// What is worth least goes first, as learned from how keys of its class were used at its age: `reuse_statistics`.
///
/// A key's class is how often it was used, up to three times, also before it was last evicted; and how many keys its
/// last request did not find: a conversation that goes on brings few, and a long prompt that shares its beginning with
/// others brings many and seldom comes back.
///
/// Each class has its entries in order of their last use. Worth rises and falls with age: somebody who talks with a
/// model does not ask again at once. So what is worth least stands at one of the two ends of its list; where it is the
/// young one, few are kept until their time comes, instead of all until shortly before. Each eviction compares the ends
/// of all lists.
///
/// In a cluster a key is followed where it is used: who fetches it follows it from then on, and who has it, or had it,
/// counts a use, and follows it no more. A key that is fetched is no new one, so time does not go on by it.
///
/// 8 bytes an entry, 2 for a key that is gone, and at most 128 KiB for the sample.
class reuse_policy final : public listing_policy {
public:
  explicit reuse_policy(key_hash hash);

  void announced(std::span<const entry_index> entries, const entry_use& how) override;
  void used_elsewhere(std::uint64_t hash) override { statistics_.used_elsewhere(hash, now_); }
  std::optional<reuse_knowledge> knowledge() const override;
  void learn_from(const reuse_counts& others) override { statistics_.learn_from(others); }
  std::uint64_t resident_bytes() const noexcept override;

private:
  // A tag: how many were missing, in two bits; how often the entry was used, in two; whether the sample has it.
  static constexpr std::uint32_t missing_mask = 3;
  static constexpr std::uint32_t most_uses = 3;
  static constexpr std::uint32_t uses_shift = 2;
  static constexpr std::uint32_t sampled = 16;

  static constexpr position classes = reuse_statistics::classes;
  static constexpr std::uint32_t marks_per_class = 32;

  /// The time at some places of a list, from the oldest on: nodes of their own, each behind what was placed before.
  struct time_marks {
    struct mark {
      position at = 0;
      std::uint64_t time = 0;
    };
    std::array<mark, marks_per_class> marks;
    std::uint32_t count = 0;
    /// Nodes that are not in use are the upper ones.
    std::array<position, marks_per_class> unused;
    /// About the times of the oldest entry and the youngest: those of the mark that was taken away last before it, and
    /// of the last placement or the mark that was taken away last behind it.
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

  /// Something is about to be placed at the young end.
  void mark_time(position list);
  void thin(time_marks& of);
  /// Takes marks away from both ends.
  void trim(position list);
  void note(position at, std::uint32_t tag);
  /// Of an entry of the sample.
  void note_use(position at, std::uint32_t tag, const entry_use& how);

  key_hash hash_;
  ghost_table ghosts_;
  reuse_statistics statistics_;
  std::array<time_marks, classes> times_;
  /// Keys that came in, from others than nodes.
  std::uint64_t now_ = 0;
  std::uint64_t learn_at_ = 0;
};

std::unique_ptr<eviction_policy> make_reuse_policy(key_hash hash);

} // namespace troupe
