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
  /// A rank gives for another one's pages if its oldest page was not used for so many times as long as the other one's,
  /// and for so much longer: else two that are equally busy would take from each other all the time.
  std::uint32_t age_ratio = 2;
  duration age_margin = std::chrono::seconds(2);
  /// For so long nobody has to give who was lent something: it has not been able to use it yet.
  duration keep_at_least = std::chrono::seconds(2);
  /// For so long nobody is asked again who could not give.
  duration refusal_lasts = std::chrono::seconds(1);
  /// A wish is over when it was not repeated for so long.
  duration wish_lasts = std::chrono::seconds(3);
};

/// Who gives an extent to whom, once all of the arena is lent. Borrowers are ranks of namespaces, all alike, whatever
/// the size of their pages.
///
/// What a rank has is worth what its oldest page is: how long that was not used. A rank that wants more gets an extent
/// of the one whose oldest page is oldest, if it is clearly older than any of its own. A rank that has nothing gets one
/// in any case: of those who have more than one, of whoever needs it least; where nobody has, of whoever has had its
/// own for some time.
///
/// Nobody is asked for two extents at a time, and nobody is fetched two. What comes back goes to the rank for which it
/// was fetched, and if that wants it no more, to another one that does, or to the arena. Between the two it is nobody
/// else's: it never was given back to the arena.
///
/// Plain state. What is decided is in `take_orders`, `take_loans` and `take_returns`; whoever carries it out says how
/// it ended.
class memory_broker_state {
public:
  using borrower = std::uint64_t;
  using extent_number = std::uint32_t;

  /// What a borrower says of itself.
  struct report {
    bool wants = false;
    std::uint32_t extents = 0;
    std::uint64_t free_bytes = 0;
    /// When its oldest page was used last, if it has any.
    std::optional<timestamp> oldest_use;
  };
  /// `from` shall give one back; `given_back` or `refused` follows, once.
  struct order {
    borrower from = 0;
    /// For somebody who has nothing.
    bool must = false;

    friend bool operator==(const order&, const order&) = default;
  };
  /// The extent is lent to `to`; `accepted` follows, once.
  struct loan {
    borrower to = 0;
    extent_number extent = 0;

    friend bool operator==(const loan&, const loan&) = default;
  };

  explicit memory_broker_state(const memory_broker_options& options) : options_(options) {}

  void add(borrower x);
  /// It is gone, with what it has. What is on its way to it goes elsewhere, when `accepted` says that it was not taken.
  void remove(borrower x, timestamp now);
  void told(borrower x, const report& what, timestamp now);

  void given_back(borrower from, extent_number extent, timestamp now);
  void refused(borrower from, timestamp now);
  void accepted(const loan& x, bool taken, timestamp now);

  std::vector<order> take_orders() { return std::exchange(orders_, {}); }
  std::vector<loan> take_loans() { return std::exchange(loans_, {}); }
  /// Extents that nobody wants: the arena's again.
  std::vector<extent_number> take_returns() { return std::exchange(returns_, {}); }

  std::size_t borrowers() const noexcept { return all_.size(); }
  /// Extents that went from one rank to another.
  std::uint64_t moved() const noexcept { return moved_; }
  /// The first inconsistency, or an empty text. For tests.
  std::string check() const;

private:
  struct entry {
    report said;
    /// When it was last seen to have more than before.
    timestamp grown = timestamp::min();
    timestamp refused_until = timestamp::min();
    timestamp wants_until = timestamp::min();
    /// For whom it gives, while it does; 0 if that one is gone.
    std::optional<borrower> gives_for;
    /// One is fetched for it, or on its way to it.
    bool served = false;
  };

  bool wants(const entry& x, timestamp now) const noexcept { return x.said.wants && now < x.wants_until; }
  static bool destitute(const entry& x) noexcept { return x.said.extents == 0; }
  duration age(const entry& x, timestamp now) const noexcept;
  bool may_give(borrower who, const entry& x, borrower to, timestamp now) const noexcept;
  borrower choose_giver(borrower to, timestamp now) const;
  /// Who waits for longest, those first who have nothing; 0 if nobody.
  borrower next_in_need(timestamp now) const;
  void settle(timestamp now);
  void pass_on(extent_number extent, borrower preferred, timestamp now);
  void end_service(borrower x);

  memory_broker_options options_;
  std::map<borrower, entry> all_;
  /// Those who want something, in the order in which they began to.
  std::vector<borrower> wishes_;
  std::vector<order> orders_;
  std::vector<loan> loans_;
  std::vector<extent_number> returns_;
  std::uint64_t moved_ = 0;
};

} // namespace troupe
