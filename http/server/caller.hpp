#pragma once

#include "http/server/role.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// Who asks, as far as the server knows: the owner of a token; or, where there are no tokens, everybody.
struct caller {
  role grants = role::none;
  /// For people and metrics: the token's name; else its role, or "anonymous" for who needs no token.
  std::string name;
  /// Who has the same is the same caller, also after tokens were loaded again. Not for showing: it says more of a token
  /// than anybody should know.
  std::string identity;
  /// Names of namespaces, or beginnings of names with `*` behind them. None: all namespaces there are.
  std::vector<std::string> namespaces;

  bool is_limited() const noexcept { return !namespaces.empty(); }
  /// Whether a namespace of this name is among those of the caller. All others are not there for it.
  bool may_use(std::string_view space) const noexcept;
  /// An administrator who has shown that it is one, by a token or by the file that it could open. Salts keep tenants
  /// apart: they are not for every program of a host on which there are no tokens.
  bool may_see_salts() const noexcept;
};

/// Shared with what is under way, as tokens may be loaded again meanwhile.
using caller_ptr = std::shared_ptr<const caller>;

/// Who needs no token, as there are none: it may do everything.
caller_ptr anonymous_caller() noexcept;
/// Who came by the Unix socket, and so is the user of the node or root: it may do everything.
caller_ptr local_caller() noexcept;
/// Who has not shown a token that is known.
caller_ptr unknown_caller() noexcept;

} // namespace troupe::http
