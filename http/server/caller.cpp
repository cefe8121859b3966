#include "http/server/caller.hpp"

#include <algorithm>

namespace troupe::http {

namespace {

/// No token has this name.
constexpr std::string_view anonymous = "anonymous";

/// A pointer to a caller with static lifetime, without a reference count.
caller_ptr forever(const caller& x) noexcept {
  return {caller_ptr{}, &x};
}

} // namespace

bool caller::may_use(std::string_view ns) const noexcept {
  return !is_limited() || std::ranges::any_of(namespaces, [ns](std::string_view x) {
    return x.ends_with('*') ? ns.starts_with(x.substr(0, x.size() - 1)) : ns == x;
  });
}

bool caller::may_see_salts() const noexcept {
  return grants == role::admin && name != anonymous;
}

caller_ptr anonymous_caller() noexcept {
  static const caller x{role::admin, std::string(anonymous), std::string(anonymous), {}};
  return forever(x);
}

caller_ptr local_caller() noexcept {
  static const caller x{role::admin, "local", "local", {}};
  return forever(x);
}

caller_ptr unknown_caller() noexcept {
  static const caller x{role::none, "unknown", "unknown", {}};
  return forever(x);
}

} // namespace troupe::http
