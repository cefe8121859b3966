#pragma once

#include "base/error.hpp"

#include <caf/all.hpp>

#include <string>

CAF_ERROR_CODE_ENUM(troupe::errc, "troupe")

namespace troupe {

/// Converts an `error` to CAF's form.
inline caf::error to_caf(const error& e) {
  return caf::make_error(e.code, e.text);
}

/// The error that a request handler received: its own code where it is one of Troupe; `unreachable` for CAF's errors
/// about dead or unreachable actors, `timeout` for a request time-out, else `internal`. Safe for the empty error.
error from_caf(const caf::error& e);

/// Converts the result of a state class to the answer of a message handler.
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
