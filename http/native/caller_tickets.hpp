#pragma once

#include "base/identifiers.hpp"
#include "http/server/caller.hpp"
#include "messages/registry_messages.hpp"

#include <array>
#include <cstdint>

namespace troupe::http::native {

/// Maps the leases and reservations of callers to names in the registry.
///
/// A caller names them by two numbers, of its own or made up here. The registry gets two others: an owner that is the
/// caller's, and a sequence that depends on the caller and both its numbers, each by a keyed hash. So the same numbers
/// mean the same to one caller, also after its tokens were reloaded, and another caller can name none of them, whatever
/// numbers it sends. Each object makes a new key; leases and reservations do not outlive the registry either.
/// Thread-safe.
class caller_tickets {
public:
  caller_tickets();

  ticket in_registry(const caller& who, const ticket& named) const;

  /// Two numbers for a caller that sends none. They cannot be guessed, and any JSON parser keeps their 53 bits.
  static ticket fresh();

private:
  std::array<unsigned char, 32> key_{};
};

} // namespace troupe::http::native
