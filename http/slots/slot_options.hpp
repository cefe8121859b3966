#pragma once

#include "base/clock.hpp"
#include "http/registry/caller_limits.hpp"
#include "http/slots/client_keys.hpp"
#include "http/slots/refusals.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace troupe::http::slots {

/// Options that the protocols of slot clients have in common; these clients address a page by its slot.
struct options {
  /// Limit of namespaces that clients may create.
  std::uint32_t max_namespaces = 64;
  /// How long a page is kept after a client has received its location.
  duration protect_for = std::chrono::seconds{10};
  /// How long a client has to write a page that it reserved.
  duration reservation_deadline = std::chrono::seconds{60};
  /// Limit of items in one list of a request.
  std::size_t max_keys = 65536;
  client_keys::secret key_secret{};
  /// Locations that callers of role `read` have received protect pages from eviction.
  caller_limits limits = {};
  /// Counts refused items of a confirmation, whose answer cannot report them. May be empty.
  refusal_counter count_refused;
};

} // namespace troupe::http::slots
