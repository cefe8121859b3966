#pragma once

#include "base/error.hpp"

#include <filesystem>
#include <string>
#include <string_view>

namespace troupe::client_detail {

/// The address of a server, parsed from its URL.
struct endpoint {
  bool tls = false;
  /// A Unix socket, or the directory of a node that has one; then there are no host and port.
  std::filesystem::path socket;
  std::string host;
  std::string port;
  /// The value of the Host header: with brackets around IPv6 addresses, and without a default port.
  std::string authority;
  /// The prefix of all paths; empty, or it begins with a slash and does not end with one.
  std::string prefix;
};

/// Reads "http://host", "https://host:port/prefix", "http://[::1]:8000", "unix:/path". No user, query or fragment.
result<endpoint> parse_url(std::string_view url);

} // namespace troupe::client_detail
