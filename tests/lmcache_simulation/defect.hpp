#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace troupe::lmcache_simulation {

/// Mistakes that can be built in around the rules, to prove that the checks find them.
enum class defect : std::uint8_t {
  none,
  /// A registration is answered when it comes.
  answer_at_once,
  /// A lane is given work for a registration that has ended.
  copy_after_end,
  /// Lanes of a connection that has ended do not count as at work.
  forget_the_disconnected,
  /// A registration that comes while another one of the worker is under way is answered with that one.
  keep_the_first,
  /// Changes that a later one has replaced are not answered.
  answer_the_last_only,
  /// A process counts as another one when it connects anew.
  take_reconnects_for_strangers,
  /// Released slots are kept.
  keep_the_released,
  /// Every ping is answered with true.
  ping_always_true,
  /// The end of an attachment is not noticed.
  forget_lost_attachments,
};

inline constexpr std::array<std::pair<std::string_view, defect>, 9> defect_names{{
    {"answer-at-once", defect::answer_at_once},
    {"copy-after-end", defect::copy_after_end},
    {"forget-the-disconnected", defect::forget_the_disconnected},
    {"keep-the-first", defect::keep_the_first},
    {"answer-the-last-only", defect::answer_the_last_only},
    {"take-reconnects-for-strangers", defect::take_reconnects_for_strangers},
    {"keep-the-released", defect::keep_the_released},
    {"ping-always-true", defect::ping_always_true},
    {"forget-lost-attachments", defect::forget_lost_attachments},
}};

} // namespace troupe::lmcache_simulation
