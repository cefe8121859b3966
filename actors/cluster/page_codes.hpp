#pragma once

#include "base/error.hpp"

#include <cstddef>

namespace troupe::cluster {

/// What an answer with one code per page says of one of them. Where it failed as a whole, that counts for each; of what
/// it leaves out, and of a code that there is not, it says nothing: `internal`.
template <class Reply>
errc code_at(const result<Reply>& outcome, std::size_t i) {
  if (!outcome)
    return outcome.error().code;
  const auto known = i < outcome->results.size() && outcome->results[i] < errc_count;
  return known ? static_cast<errc>(outcome->results[i]) : errc::internal;
}

} // namespace troupe::cluster
