#pragma once

#include "base/error.hpp"

#include <caf/all.hpp>

#include <string>

CAF_ERROR_CODE_ENUM(troupe::errc, "troupe")

namespace troupe {

/// An error of ours as CAF carries it.
inline caf::error to_caf(const error& e) {
  return caf::make_error(e.code, e.text);
}

/// What a request handler got back: our own code where it is ours; what CAF reports of dead or unreachable actors
/// becomes `unreachable`, a request time-out `timeout`, anything else `internal`. Safe for the empty error.
error from_caf(const caf::error& e);

/// The value or the error of a state class as the answer of a message handler.
template <class T>
caf::result<T> to_caf(result<T> x) {
  if (x)
    return std::move(*x);
  return to_caf(x.error());
}

inline caf::result<void> to_caf(const result<void>& x) {
  if (x)
    return caf::unit;
  return to_caf(x.error());
}

} // namespace troupe
