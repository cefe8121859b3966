#pragma once

#include "base/clock.hpp"
#include "http/callers/caller_limits.hpp"
#include "http/slots/client_keys.hpp"
#include "http/slots/refusals.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe::http::slots {

/// What the wires of slot clients have in common: clients that know a page by its slot.
struct options {
  /// Namespaces that clients may bring into being.
  std::uint32_t max_namespaces = 64;
  /// How long a page is kept whose location was told.
  duration protect_for = std::chrono::seconds{10};
  /// How long a client has to write a page that it was given.
  duration reservation_deadline = std::chrono::seconds{60};
  /// Items of one list of a request.
  std::size_t max_keys = 65536;
  client_keys::secret key_secret{};
  /// Locations that callers were told who may only read keep pages from being evicted.
  caller_limits limits = {};
  /// For items of a confirmation, whose answer has no room for them. May be empty.
  refusal_counter count_refused;
};

} // namespace troupe::http::slots
