#pragma once

#include "fuzz/check.hpp"
#include "http/server/json_body.hpp"

namespace troupe::fuzz {

/// Counts an accepted text in `accepted`, and checks that a refusal has a reason. Returns whether it was accepted.
template <class T>
bool count(const http::accepted<T>& x, int& accepted) {
  if (x)
    ++accepted;
  else
    demand(!x.error().detail.empty() && static_cast<int>(x.error().code) >= 400, "a refusal without a reason");
  return x.has_value();
}

} // namespace troupe::fuzz
