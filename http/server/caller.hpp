#pragma once

#include "http/server/role.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// The sender of a request, as far as the server knows: the owner of a token, or, without tokens, any client.
struct caller {
  role grants = role::none;
  /// For people and metrics: the token's name; else its role, or "anonymous" if no token is needed.
  std::string name;
  /// Equal for the same caller, also after tokens were reloaded. Not to be shown: it reveals too much about a token.
  std::string identity;
  /// Names of namespaces, or prefixes followed by `*`. Empty: all namespaces.
  std::vector<std::string> namespaces;

  bool is_limited() const noexcept { return !namespaces.empty(); }
  /// Whether a namespace of this name is among those of the caller. All others do not exist for it.
  bool may_use(std::string_view ns) const noexcept;
  /// Whether the caller is an authenticated administrator, by a token or by access to the Unix socket. Salts separate
  /// tenants: without tokens, they are hidden from other programs of the host.
  bool may_see_salts() const noexcept;
};

/// Shared with pending requests, as tokens may be reloaded meanwhile.
using caller_ptr = std::shared_ptr<const caller>;

/// The caller if there are no tokens; it has all rights.
caller_ptr anonymous_caller() noexcept;
/// The caller of the Unix socket, which only the node's user and root can open; it has all rights.
caller_ptr local_caller() noexcept;
/// A caller without a known token.
caller_ptr unknown_caller() noexcept;

} // namespace troupe::http
