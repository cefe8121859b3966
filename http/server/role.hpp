#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::http {

/// The rights of a caller, and the requirement of a route. Each role includes those before it.
enum class role : std::uint8_t {
  /// No token needed.
  none,
  /// Look up and load.
  read,
  /// Save as well.
  write,
  /// Clear, drain, and see internals of the node.
  admin,
};

/// "none", "read", "write", "admin"
std::string_view to_string(role x) noexcept;

/// The role of that name; none for "none" and everything else that a token cannot have.
std::optional<role> role_from(std::string_view name) noexcept;

} // namespace troupe::http
