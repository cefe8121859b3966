#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"
#include "io/claims/claim_record.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe::io {

/// The claim in force, as a look at the directory found it.
struct claim_sighting {
  /// 0 means none.
  claim_number number = 0;
  /// A digest of the bytes, whatever they contain.
  std::uint64_t fingerprint = 0;
  /// Nothing where it cannot be read, as while it is being made.
  std::optional<claim_record> record{};
};

/// The next step of a node that requests or holds a directory.
struct claim_step {
  enum class kind : std::uint8_t {
    /// Find the claim in force, bypassing caches of the host; outcome to `looked`.
    look,
    /// Make this claim unless its number exists; outcome to `made`.
    make,
    /// Write this existing claim; outcome to `written`.
    write,
    /// Remove all claims below this number; outcome to `removed`.
    remove_below,
    /// No more steps.
    end,
  };
  kind what = kind::end;
  claim_number number = 0;
  claim_record record{};
  /// The step must not begin before this time.
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
  /// Observes which node holds it, and whether that node is alive.
  watching,
  /// Has made a claim, and waits until the previous holder has noticed.
  waiting,
  holding,
  /// Another node holds it and is alive; nothing was changed.
  refused,
  /// Another node has taken over.
  lost,
  released,
};

/// The rules for which node may write to a data directory that several hosts can reach. Plain state, for one node.
///
/// The directory contains numbered claims, each made by exactly one node. The highest is in force. Its holder renews
/// it: the holder writes another counter into it and *then* looks for a higher one. If it finds none, it may write for
/// one lease from the beginning of that renewal, by its own clock.
///
/// A node that wants to take over first sees the counter stand still for a lease and a margin, in looks of which none
/// failed and none came more than a lease after the one before. It then makes the next number and waits as long again:
/// a holder that renewed just before has no time left by then, and one that renews later finds the higher claim. So
/// clocks are never compared, and it does not matter whether the previous holder is dead, frozen or partitioned. Two
/// nodes that take over at once try to make the same number, and one of them succeeds.
///
/// Claims that are no longer in force remain for a while: a node that was frozen before it made a number may make that
/// number again, and it must then find the higher claim.
///
/// An adopter never writes, so the owner of a directory takes it from an adopter at once.
///
/// Times are `boot_time`, or another clock that advances while a process is stopped.
class claim_rules {
public:
  explicit claim_rules(claim_options options, timestamp now);

  /// How much longer than a lease other nodes wait: for clock drift, and for a file system that shows changes late.
  static constexpr duration margin_of(duration lease) noexcept { return lease / 2; }
  static constexpr duration wait_of(duration lease) noexcept { return lease + margin_of(lease); }

  /// The next step. It is carried out once and reported by one of the functions below; it stays the same until then.
  const claim_step& next() const noexcept { return next_; }

  /// `begun` and `ended` are taken just before and just after the step.
  void looked(timestamp begun, timestamp ended, const result<claim_sighting>& found);
  /// The outcome `exists` means that another node was faster.
  void made(timestamp begun, timestamp ended, const result<void>& outcome);
  void written(timestamp begun, timestamp ended, const result<void>& outcome);
  void removed(timestamp begun, timestamp ended);

  /// The final write of a holder, to be made after its last write to the directory; nothing where it holds no claim.
  std::optional<claim_step> release();

  claim_state state() const noexcept { return state_; }
  claim_number number() const noexcept { return number_; }
  /// The time until which an owner may write; in the past where it may not.
  timestamp valid_until() const noexcept { return valid_until_; }
  bool may_write(timestamp now) const noexcept { return state_ == claim_state::holding && now < valid_until_; }
  /// The number of the claim in force, as last seen; 0 for none.
  claim_number in_force() const noexcept { return in_force_; }
  /// The other holder, as last seen: of the claim in force, or of the claim that displaced this one.
  const std::optional<claim_record>& other() const noexcept { return other_; }
  /// The error of the last step, if it failed.
  const std::optional<error>& trouble() const noexcept { return trouble_; }

private:
  void look_at(timestamp when);
  void begin_renewal(timestamp when);
  void watch(timestamp begun, timestamp ended, const claim_sighting& found);
  void make_next(const claim_sighting& found, duration wait, timestamp now);
  void judge_renewal(timestamp ended, const claim_sighting& found);
  void end_as(claim_state how);
  claim_record record(timestamp now) const;
  /// The pause between renewals, between looks, and after a failure.
  duration pause() const noexcept { return options_.lease / 4; }

  claim_options options_;
  claim_state state_ = claim_state::watching;
  claim_step next_;
  /// The observed claim, and since when it is known to be unchanged.
  std::optional<claim_sighting> watched_;
  timestamp still_since_{};
  /// The end of the last successful look.
  timestamp last_look_{};
  /// The number of this node's claim.
  claim_number number_ = 0;
  std::uint64_t counter_ = 0;
  /// The lease that previous holders may still have.
  duration lease_before_{};
  duration wait_{};
  timestamp holds_from_{};
  /// The beginning of the renewal in progress.
  timestamp renewal_{};
  timestamp valid_until_ = timestamp::min();
  bool has_cleaned_ = false;
  claim_number in_force_ = 0;
  std::optional<claim_record> other_;
  std::optional<error> trouble_;
};

} // namespace troupe::io
