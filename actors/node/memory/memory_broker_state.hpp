#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct memory_broker_options {
  std::uint64_t extent_bytes = 1;
  /// A rank gives an extent to another one if its oldest page has been unused for `age_ratio` times as long, and for
  /// `age_margin` longer. Without this, two equally busy ranks would take extents from each other all the time.
  std::uint32_t age_ratio = 2;
  duration age_margin = std::chrono::seconds(2);
  /// For this long a rank that received an extent need not give one: it could not use it yet.
  duration keep_at_least = std::chrono::seconds(2);
  /// For this long a rank that could not give an extent is not asked again.
  duration refusal_lasts = std::chrono::seconds(1);
  /// A wish expires if it is not repeated for this long.
  duration wish_lasts = std::chrono::seconds(3);
};

/// Decides which rank gives an extent to which, once all of the arena is assigned. Holders are ranks of namespaces,
/// treated alike whatever the size of their pages; within a rank, the sizes of its frames.
///
/// The value of a rank's memory is the age of its oldest page: how long that has been unused. A rank that wants more
/// gets an extent of the rank whose oldest page is oldest, if that is clearly older than any of its own. A rank without
/// extents gets one in any case: from the rank with more than one whose oldest page is oldest, or else from a rank that
/// has had its extent for some time.
///
/// At most one extent at a time is requested from a rank, and for a rank. An extent that comes back goes to the rank it
/// was requested for. If that rank wants it no more, it goes to another one that does, or to the arena. Meanwhile it
/// stays assigned: it was not returned to the arena.
///
/// Plain state. Decisions are returned by `take_orders`, `take_assignments` and `take_returns`; the caller reports
/// their results.
class memory_broker_state {
public:
  using holder = std::uint64_t;
  using extent_number = std::uint32_t;

  /// The state that a holder reports of itself.
  struct report {
    bool wants = false;
    std::uint32_t extents = 0;
    std::uint64_t free_bytes = 0;
    /// When its oldest page was last used, if it has any.
    std::optional<timestamp> oldest_use;
  };
  /// A request that `from` give back one extent; `given_back` or `refused` follows, once.
  struct order {
    holder from = 0;
    /// Whether it is for a rank without extents.
    bool must = false;

    friend bool operator==(const order&, const order&) = default;
  };
  /// The extent is assigned to `to`; `accepted` follows, once.
  struct assignment {
    holder to = 0;
    extent_number extent = 0;

    friend bool operator==(const assignment&, const assignment&) = default;
  };

  explicit memory_broker_state(const memory_broker_options& options) : options_(options) {}

  void add(holder x);
  /// Removes a holder that has ended, with its extents. An extent that is being assigned to it goes elsewhere, when
  /// `accepted` reports that it was not taken.
  void remove(holder x, timestamp now);
  void notified(holder x, const report& what, timestamp now);

  void given_back(holder from, extent_number extent, timestamp now);
  void refused(holder from, timestamp now);
  void accepted(const assignment& x, bool taken, timestamp now);

  std::vector<order> take_orders() { return std::exchange(orders_, {}); }
  std::vector<assignment> take_assignments() { return std::exchange(assignments_, {}); }
  /// Extents that no rank wants, to be returned to the arena.
  std::vector<extent_number> take_returns() { return std::exchange(returns_, {}); }

  std::size_t holders() const noexcept { return all_.size(); }
  /// Number of extents that moved from one rank to another.
  std::uint64_t moved() const noexcept { return moved_; }
  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  struct entry {
    report said;
    /// When it was last reported to have more extents than before.
    timestamp grown = timestamp::min();
    timestamp refused_until = timestamp::min();
    timestamp wants_until = timestamp::min();
    /// The holder that it is giving an extent to; 0 if that one has ended.
    std::optional<holder> gives_for;
    /// An extent is being requested for it, or assigned to it.
    bool served = false;
  };

  bool wants(const entry& x, timestamp now) const noexcept { return x.said.wants && now < x.wants_until; }
  static bool destitute(const entry& x) noexcept { return x.said.extents == 0; }
  duration age(const entry& x, timestamp now) const noexcept;
  bool may_give(holder who, const entry& x, holder to, timestamp now) const noexcept;
  holder choose_giver(holder to, timestamp now) const;
  /// The holder that has waited longest, those without extents first; 0 if there is none.
  holder next_in_need(timestamp now) const;
  void settle(timestamp now);
  void pass_on(extent_number extent, holder preferred, timestamp now);
  void end_service(holder x);

  memory_broker_options options_;
  std::map<holder, entry> all_;
  /// Holders that want extents, in the order in which they began to.
  std::vector<holder> wishes_;
  std::vector<order> orders_;
  std::vector<assignment> assignments_;
  std::vector<extent_number> returns_;
  std::uint64_t moved_ = 0;
};

} // namespace troupe
