#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::owner_simulation {

/// Mistakes that can be built in around the rules, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// A node that has made a claim takes over the directory at once.
  take_without_waiting,
  /// A holder writes its counter, and takes it for granted that there is no higher claim.
  renew_without_looking,
  /// A holder writes whether it has renewed in time or not.
  write_after_lease,
  /// Two readings of an unchanged counter are enough.
  take_the_frozen_for_dead,
  /// A node that stops waiting removes its claim.
  remove_while_waiting,
  /// The next number is that of claims, and not the next after the highest.
  reuse_a_number,
  /// The clock stops as long as the process does.
  stop_the_clock,
  /// A waiting node announces its own lease even if an earlier one has a longer lease.
  report_own_lease,
  /// Pages of an adopted slab are handed on as its index has them.
  trust_the_index,
  /// An adopter keeps what it has adopted when it has lost its claim.
  keep_the_adopted,
  /// A look that the file system refuses counts as one that has found what the one before had.
  look_from_memory,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 11> defect_names{{
    {"take-without-waiting", defect::take_without_waiting},
    {"renew-without-looking", defect::renew_without_looking},
    {"write-after-lease", defect::write_after_lease},
    {"take-the-frozen-for-dead", defect::take_the_frozen_for_dead},
    {"remove-while-waiting", defect::remove_while_waiting},
    {"reuse-a-number", defect::reuse_a_number},
    {"stop-the-clock", defect::stop_the_clock},
    {"tell-own-lease", defect::report_own_lease},
    {"trust-the-index", defect::trust_the_index},
    {"keep-the-adopted", defect::keep_the_adopted},
    {"look-from-memory", defect::look_from_memory},
}};

} // namespace troupe::owner_simulation
