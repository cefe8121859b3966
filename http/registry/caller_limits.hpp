#pragma once

#include "http/server/caller.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>

namespace troupe::http {

/// The limits of leases that callers hold, see `config::http_limits`.
struct caller_limits {
  std::uint32_t leases = 1024;
  double leased_share = 0.5;
  double readers_share = 0.5;

  lease_bounds of(const caller& who) const noexcept;
  /// For callers of role `read`; else 0.
  std::uint32_t readers_share_of(const caller& who) const noexcept;
};

} // namespace troupe::http
