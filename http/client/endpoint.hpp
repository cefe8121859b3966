#pragma once

#include "base/error.hpp"

#include <string>
#include <string_view>

namespace troupe::client_detail {

/// Where a server is, out of its URL.
struct endpoint {
  bool tls = false;
  std::string host;
  std::string port;
  /// As it stands in the header: with brackets around addresses of IPv6, and without a port that goes without saying.
  std::string authority;
  /// In front of all paths; empty, or it begins with a slash and does not end with one.
  std::string prefix;
};

/// Reads "http://host", "https://host:port/prefix", "http://[::1]:8000". No user, query or fragment.
result<endpoint> parse_url(std::string_view url);

} // namespace troupe::client_detail
