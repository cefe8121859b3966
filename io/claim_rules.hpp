#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "io/claim_record.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe::io {

/// The claim in force, as a look at the directory found it.
struct claim_sighting {
  /// 0: there is none.
  claim_number number = 0;
  /// Of the bytes, whatever they say.
  std::uint64_t fingerprint = 0;
  /// Nothing where it cannot be read, as while it is being made.
  std::optional<claim_record> record{};
};

/// What somebody does next who wants a directory, or has it.
struct claim_step {
  enum class kind : std::uint8_t {
    /// Finds the claim in force, past all that the host remembers of files; `looked`.
    look,
    /// Makes this claim, where there is none of the number; `made`.
    make,
    /// Writes this claim, which is there; `written`.
    write,
    /// Removes all claims below this number; `removed`.
    remove_below,
    /// Nothing ever again.
    end,
  };
  kind what = kind::end;
  claim_number number = 0;
  claim_record record{};
  /// Not before.
  timestamp at{};
};

struct claim_options {
  std::string holder;
  incarnation_number incarnation = 0;
  claim_kind kind = claim_kind::owner;
  duration lease = std::chrono::seconds(10);
  std::string cluster{};
};

enum class claim_state : std::uint8_t {
  /// Looks who has it, and whether that one lives.
  watching,
  /// Has a claim, and waits until whoever had one before knows.
  waiting,
  holding,
  /// Somebody else has it and lives; nothing was changed.
  refused,
  /// Somebody else has taken it.
  lost,
  released,
};

/// Who may write to a data directory that several hosts can reach: plain rules, for one who wants it.
///
/// In the directory lie numbered claims, each made by one alone. The highest is in force. Who holds it renews it: it
/// writes another counter into it and *then* looks for a higher one. Having found none, it may write for a lease from
/// the beginning of that renewal on, by its own clock.
///
/// Who wants to take over has seen the counter stand still for a lease and a margin, by looks of which none failed and
/// none came more than a lease after the one before; makes the next number, and waits as long again: whoever renewed
/// just before has nothing left by then, and whoever renews after finds the higher claim. So no clocks are compared,
/// and it does not matter whether the one before is dead, frozen, or cut off. Two who want to take over want to make
/// the same number, which one of them does.
///
/// Claims that are no more in force stay for a while: a number may be made again by who was frozen before it made it,
/// and that one has to find the higher claim.
///
/// An adopter never writes, so the owner of a directory takes it from an adopter at once.
///
/// Times are `boot_time`, or whatever goes on while a process stands still.
class claim_rules {
public:
  explicit claim_rules(claim_options options, timestamp now);

  /// How much longer than a lease others wait: for clocks that run apart, and for a file system that shows what is new
  /// a little late.
  static constexpr duration margin_of(duration lease) noexcept { return lease / 2; }
  static constexpr duration wait_of(duration lease) noexcept { return lease + margin_of(lease); }

  /// Is carried out once, and its outcome told by one of the functions below. The same until then.
  const claim_step& next() const noexcept { return next_; }

  /// `begun` and `ended` are taken just before and just after.
  void looked(timestamp begun, timestamp ended, const result<claim_sighting>& found);
  /// `exists` where somebody was faster.
  void made(timestamp begun, timestamp ended, const result<void>& outcome);
  void written(timestamp begun, timestamp ended, const result<void>& outcome);
  void removed(timestamp begun, timestamp ended);

  /// The last word of a holder, after its last write; nothing where it holds no claim.
  std::optional<claim_step> release();

  claim_state state() const noexcept { return state_; }
  claim_number number() const noexcept { return number_; }
  /// Until when an owner may write; in the past where it may not.
  timestamp valid_until() const noexcept { return valid_until_; }
  bool may_write(timestamp now) const noexcept { return state_ == claim_state::holding && now < valid_until_; }
  /// The claim in force, as far as was seen; 0 for none.
  claim_number in_force() const noexcept { return in_force_; }
  /// Who has it, as far as was seen: of the claim in force, or of the one that this one was lost to.
  const std::optional<claim_record>& other() const noexcept { return other_; }
  /// What came of the last step, where it failed.
  const std::optional<error>& trouble() const noexcept { return trouble_; }

private:
  void look_at(timestamp when);
  void begin_renewal(timestamp when);
  void watch(timestamp begun, timestamp ended, const claim_sighting& found);
  void make_next(const claim_sighting& found, duration wait, timestamp now);
  void judge_renewal(timestamp ended, const claim_sighting& found);
  void end_as(claim_state how);
  claim_record record(timestamp now) const;
  /// Between renewals, looks, and tries after one that failed.
  duration pause() const noexcept { return options_.lease / 4; }

  claim_options options_;
  claim_state state_ = claim_state::watching;
  claim_step next_;
  /// What is watched, and since when it is known to be as it is.
  std::optional<claim_sighting> watched_;
  timestamp still_since_{};
  /// When the last look ended that found something.
  timestamp last_look_{};
  /// The own claim.
  claim_number number_ = 0;
  std::uint64_t counter_ = 0;
  /// How long others may have that were before.
  duration lease_before_{};
  duration wait_{};
  timestamp holds_from_{};
  /// When the renewal began that is under way.
  timestamp renewal_{};
  timestamp valid_until_ = timestamp::min();
  bool has_cleaned_ = false;
  claim_number in_force_ = 0;
  std::optional<claim_record> other_;
  std::optional<error> trouble_;
};

} // namespace troupe::io
