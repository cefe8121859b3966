#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// A TCP socket that is bound and does not listen yet: connections are refused until then.
class bound_socket {
public:
  /// Binds to an address. `section` is the part of the config with host and port, as in "http": errors name the keys,
  /// the obstacle and the way out. For a name with several addresses the first IPv4 one is taken, since "localhost" has
  /// both kinds and some programs know only that one; "::" means all addresses. Port 0: the system chooses.
  static result<bound_socket> open(std::string_view section, const std::string& host, std::uint16_t port);

  /// The bound port, also where 0 was requested.
  std::uint16_t port() const noexcept { return port_; }

  /// AF_INET or AF_INET6.
  int family() const noexcept { return family_; }

  /// Accepts connections from now on. Error: `busy` where another process has begun to listen on the same port since
  /// `open`.
  result<void> listen();

  /// Passes the descriptor to the caller.
  int release() noexcept;

private:
  bound_socket(unique_descriptor descriptor, int family, std::string place) noexcept;

  unique_descriptor descriptor_;
  int family_ = 0;
  std::uint16_t port_ = 0;
  /// The address and the config section for errors.
  std::string place_;
  std::string section_;
};

} // namespace troupe
