#pragma once

#include "base/error.hpp"

#include <algorithm>
#include <span>
#include <string>

/// Outcomes of one order on all shards.

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

/// Whether a removal has succeeded on any shard, or was not needed there.
inline bool any_gone(std::span<const error> outcomes) {
  return std::ranges::any_of(outcomes,
                             [](const error& x) { return x.code == errc::ok || x.code == errc::unknown_namespace; });
}

/// The error of a namespace that some shards have removed and others could not.
inline error half_removed_error(const std::string& ns) {
  return {errc::busy,
          "namespace '" + ns + "' is partly removed, because some shards failed to remove it; remove it again"};
}

} // namespace troupe
