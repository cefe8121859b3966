#pragma once

#include "base/reuse_counts.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// When keys of each class are used again, as far as a sample of them shows: how probable it is at each age, and from
/// that what an entry of that class and age is worth.
///
/// Time is the number of keys that came in. The sample is chosen by hash, and followed whether its keys are still there
/// or not: so what is learned does not depend on what was evicted. A key counts for the class it had when it was used
/// last. It is followed for some ten times as long as it takes to bring in as many keys as there are; for that, ever
/// fewer are followed as there are more.
///
/// What an entry is worth is the Gittins index of its class at its age: the best ratio there is of the probability of
/// a use in some time to come to the time that the entry would be kept for it. Where few were seen a class is believed
/// to be like all of its kind, and these like all.
class reuse_statistics {
public:
  static constexpr std::uint32_t classes = reuse_counts::classes;
  /// Those of keys that were not used yet; each of the others is like the rest of the others.
  static constexpr std::uint32_t unused_classes = 3;

  reuse_statistics();

  /// Whether keys with this hash are in the sample; those that were not are never again.
  bool follows(std::uint64_t hash) const noexcept { return (hash >> 40 & thinning_) == 0; }

  /// A key of the sample came in, or was used; from now on it is of that class.
  void note(std::uint64_t hash, std::uint32_t of, std::uint64_t now, std::uint64_t entries);

  /// The key was used, but not here, where it is followed no more: its next use is seen by whoever used it.
  void used_elsewhere(std::uint64_t hash, std::uint64_t now);

  /// What was seen here, with how long those have waited whose use is still waited for.
  reuse_counts counts(std::uint64_t now) const noexcept;

  /// What others have seen, from the next `learn` on. It counts twice as much as what was seen here at most: keys here
  /// may be used otherwise than there.
  void learn_from(const reuse_counts& others) { others_ = others; }

  /// Finds anew what entries are worth, and lets what was learned before count a little less.
  void learn(std::uint64_t now);

  float worth(std::uint32_t of, std::uint64_t age) const noexcept { return worth_[of][reuse_counts::step_of(age)]; }

  std::size_t followed() const noexcept { return count_; }
  std::uint64_t resident_bytes() const noexcept;

private:
  static constexpr std::size_t buckets = reuse_counts::ages;
  static constexpr std::size_t most_records = 2048;
  static constexpr std::uint32_t nothing = 0xffffffff;

  struct record {
    std::uint64_t hash = 0;
    std::uint64_t since = 0;
    std::uint32_t of = 0;
    /// Of the records in one place of the table.
    std::uint32_t next = nothing;
    // The order of `since`.
    std::uint32_t older = nothing;
    std::uint32_t younger = nothing;
  };

  using by_age = reuse_counts::by_age;

  std::uint32_t& place_of(std::uint64_t hash) noexcept { return places_[hash & (places_.size() - 1)]; }
  std::uint32_t find(std::uint64_t hash) noexcept;
  void add(std::uint64_t hash, std::uint32_t of, std::uint64_t now);
  void remove(std::uint32_t number) noexcept;
  void enlarge();
  void count_use(const record& x, std::uint64_t now) noexcept;
  void link_youngest(std::uint32_t number) noexcept;
  void unlink(std::uint32_t number) noexcept;
  /// `chance`: of a use at an age, for keys that get so old.
  static void value(by_age& out, const by_age& chance) noexcept;

  reuse_counts seen_;
  reuse_counts others_;
  std::array<by_age, classes> worth_{};

  std::vector<record> records_;
  std::vector<std::uint32_t> places_;
  /// Records that are not in use, linked by `next`.
  std::uint32_t free_ = nothing;
  std::uint32_t oldest_ = nothing;
  std::uint32_t youngest_ = nothing;
  std::size_t count_ = 0;
  std::uint64_t thinning_ = 0;
};

} // namespace troupe
