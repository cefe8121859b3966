#pragma once

#include "base/reuse_counts.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// Statistics of when keys of each class are used again, from a sample of them: the probability of a use at each age,
/// and from that the worth of an entry of that class and age.
///
/// Time is the number of keys inserted. The sample is chosen by hash and followed whether its keys are still cached or
/// not, so the result does not depend on what was evicted. A key counts for the class it had when it was last used. It
/// is followed for about ten times as long as it takes to insert as many keys as there are; to bound this, a smaller
/// share is followed when there are more keys.
///
/// The worth of an entry is the Gittins index of its class at its age: the best ratio of the probability of a use
/// within some period to the time that the entry would be kept for it. A class with few samples is assumed to be like
/// all classes of its kind, and these like all classes.
class reuse_statistics {
public:
  static constexpr std::uint32_t classes = reuse_counts::classes;
  /// Number of classes of keys that were not used yet. These are one kind, all other classes the other.
  static constexpr std::uint32_t unused_classes = 3;

  reuse_statistics();

  /// Whether keys with this hash are in the sample; a hash that is not in it never enters it again.
  bool follows(std::uint64_t hash) const noexcept { return (hash >> 40 & thinning_) == 0; }

  /// Records that a key of the sample was inserted or used; from now on it has class `of`.
  void note(std::uint64_t hash, std::uint32_t of, std::uint64_t now, std::uint64_t entries);

  /// Records that the key was used at another node. It is not followed here any more: the node that used it sees the
  /// next use.
  void used_elsewhere(std::uint64_t hash, std::uint64_t now);

  /// The uses seen here, and how long the sampled keys have been waiting that were not used again yet.
  reuse_counts counts(std::uint64_t now) const noexcept;

  /// Sets what other nodes have seen, used from the next `learn` on. It counts at most twice as much as what was seen
  /// here, because keys may be used differently there.
  void learn_from(const reuse_counts& others) { others_ = others; }

  /// Recomputes the worth of entries, and reduces the weight of earlier observations a little.
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
    /// The next record in the same place of the table.
    std::uint32_t next = nothing;
    // Links in the order of `since`.
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
  /// `chance`: the probability of a use at each age, for keys that reach that age.
  static void value(by_age& out, const by_age& chance) noexcept;

  reuse_counts seen_;
  reuse_counts others_;
  std::array<by_age, classes> worth_{};

  std::vector<record> records_;
  std::vector<std::uint32_t> places_;
  /// Unused records, linked by `next`.
  std::uint32_t free_ = nothing;
  std::uint32_t oldest_ = nothing;
  std::uint32_t youngest_ = nothing;
  std::size_t count_ = 0;
  std::uint64_t thinning_ = 0;
};

} // namespace troupe
