#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// A TCP socket that has its address and does not listen yet: whoever wants to connect is refused until then.
class bound_socket {
public:
  /// `section` is where in the config host and port stand, as in "http": errors name the keys, say what is in the way
  /// and how to go around it. Of a name with several addresses, the first one of IPv4 is taken, as "localhost" is both
  /// and some programs know only that; "::" is everywhere. Port 0: whichever is free.
  static result<bound_socket> open(std::string_view section, const std::string& host, std::uint16_t port);

  /// The port it has, also where 0 was asked for.
  std::uint16_t port() const noexcept { return port_; }

  /// AF_INET or AF_INET6.
  int family() const noexcept { return family_; }

  /// Accepts connections from now on. `busy` where another process has begun to, on the same port, since `open`.
  result<void> listen();

  /// The descriptor; the caller's from now on.
  int release() noexcept;

private:
  bound_socket(unique_descriptor descriptor, int family, std::string place) noexcept;

  unique_descriptor descriptor_;
  int family_ = 0;
  std::uint16_t port_ = 0;
  /// As errors name it, and where it stands in the config.
  std::string place_;
  std::string section_;
};

} // namespace troupe
