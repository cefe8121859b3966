#include "http/registry/caller_limits.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::http {

namespace {

std::uint32_t millionths(double share) noexcept {
  // 0 would mean no limit.
  return static_cast<std::uint32_t>(std::clamp(std::lround(share * whole_share), 1L, long{whole_share}));
}

} // namespace

lease_bounds caller_limits::of(const caller& who) const noexcept {
  return {leases, millionths(leased_share), readers_share_of(who)};
}

std::uint32_t caller_limits::readers_share_of(const caller& who) const noexcept {
  return who.grants == role::read ? millionths(readers_share) : 0;
}

} // namespace troupe::http
