#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::http {

/// What a caller may do, and what a route asks for. Each role may do all that those before it may.
enum class role : std::uint8_t {
  /// Anybody, also without a token.
  none,
  /// Look up and load.
  read,
  /// Save as well.
  write,
  /// Clear, drain, and see how the node works inside.
  admin,
};

/// "none", "read", "write", "admin"
std::string_view to_string(role x) noexcept;

/// The role of that name; nothing for "none" and everything else that a token cannot have.
std::optional<role> role_from(std::string_view name) noexcept;

} // namespace troupe::http
