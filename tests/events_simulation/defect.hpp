#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::events_simulation {

/// Mistakes that can be built in around the rules, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// A shard sometimes does not report a key that was removed.
  lose_removed,
  /// Or a key that has moved.
  lose_moved,
  /// Two reports of a shard sometimes change places.
  unordered,
  /// Keys count as complete whether they are or not.
  describe_incomplete,
  /// A new run numbers its batches from the same number as the one before.
  same_numbers,
  /// A batch of a replay is not sent.
  lose_reply,
  /// A batch that a slow subscriber does not get leaves no gap in the numbers.
  silent_drop,
  /// A snapshot does not clear what its requester knew.
  keep_old,
  /// The publisher does not learn that changes were dropped.
  forget_overflow,
  /// There are no empty batches.
  no_heartbeat,
  /// Of several groups of a page, only the first one is published.
  one_group,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 11> defect_names{{
    {"lose-removed", defect::lose_removed},
    {"lose-moved", defect::lose_moved},
    {"unordered", defect::unordered},
    {"describe-incomplete", defect::describe_incomplete},
    {"same-numbers", defect::same_numbers},
    {"lose-reply", defect::lose_reply},
    {"silent-drop", defect::silent_drop},
    {"keep-old", defect::keep_old},
    {"forget-overflow", defect::forget_overflow},
    {"no-heartbeat", defect::no_heartbeat},
    {"one-group", defect::one_group},
}};

} // namespace troupe::events_simulation
