#include "http/server/role.hpp"

#include <array>
#include <cstddef>

namespace troupe::http {

namespace {

constexpr std::array<std::string_view, 4> names{"none", "read", "write", "admin"};

} // namespace

std::string_view to_string(role x) noexcept {
  const auto i = static_cast<std::size_t>(x);
  return i < names.size() ? names[i] : "unknown";
}

std::optional<role> role_from(std::string_view name) noexcept {
  for (std::size_t i = 1; i < names.size(); ++i)
    if (names[i] == name)
      return static_cast<role>(i);
  return std::nullopt;
}

} // namespace troupe::http
