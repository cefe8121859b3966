#pragma once

#include "base/identifiers.hpp"
#include "http/server/caller.hpp"
#include "messages/registry_messages.hpp"

#include <array>
#include <cstdint>

namespace troupe::http::native {

/// What the leases and reservations of callers are called in the registry.
///
/// A caller names them by two numbers, of its own or made up here. The registry gets two others: an owner that is the
/// caller's, and a sequence that depends on the caller and both its numbers, each by a keyed hash. So the same numbers
/// mean the same to one caller, also after its tokens were loaded again, and whoever is another caller can name nothing
/// of it, whatever numbers it sends. The key is made anew with each object, and leases and reservations do not outlive
/// the registry either. Thread-safe.
class caller_tickets {
public:
  caller_tickets();

  ticket in_registry(const caller& who, const ticket& named) const;

  /// Two numbers for a caller that brings none. Nobody can guess them, and any JSON reader keeps their 53 bits.
  static ticket fresh();

private:
  std::array<unsigned char, 32> key_{};
};

} // namespace troupe::http::native
