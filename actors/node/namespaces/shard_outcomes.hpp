#pragma once

#include "base/error.hpp"

#include <algorithm>
#include <span>

/// What all shards said to one order.

namespace troupe {

/// ok, or the first that is neither ok nor `but_for`.
inline error first_error(std::span<const error> outcomes, errc but_for = errc::ok) {
  const auto bad =
      std::ranges::find_if(outcomes, [&](const error& x) { return x.code != errc::ok && x.code != but_for; });
  return bad == outcomes.end() ? error{errc::ok, {}} : *bad;
}

inline bool any_good(std::span<const error> outcomes) {
  return std::ranges::any_of(outcomes, [](const error& x) { return x.code == errc::ok; });
}

} // namespace troupe
