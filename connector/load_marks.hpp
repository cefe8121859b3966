#pragma once

#include "base/error.hpp"

#include <cstdint>

namespace troupe::connector {

/// The marks of `store_outcome` for the pages of a load.
using load_mark = std::uint8_t;

/// Nothing, or nothing sound, was there: another try would end in the same way.
inline constexpr load_mark page_failed = 0;
inline constexpr load_mark page_filled = 1;
/// The node was unreachable or was shutting down, which says nothing of the page.
inline constexpr load_mark page_untried = 2;

/// The mark of a page whose task has ended so.
constexpr load_mark load_mark_of(errc code) noexcept {
  if (code == errc::unreachable || code == errc::shutting_down)
    return page_untried;
  return code == errc::ok ? page_filled : page_failed;
}

} // namespace troupe::connector
