#pragma once

#include "config/node_config.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// The host names that requests may use for a server without authentication (protection from DNS rebinding). A web page
/// in a browser on this machine can make its own name resolve to the loopback interface; its requests then seem to come
/// from the same site, without an Origin, and only their Host header differs.
class host_rule {
public:
  /// Names are checked on the loopback interface, and wherever `http.hosts` lists some; not with tokens or client
  /// certificates, which such a page does not have.
  explicit host_rule(const config::http_config& config);

  /// `authority` is "host", "host:port" or "[address]:port".
  bool allows(std::string_view authority) const;
  /// The same for the target of a request: only "http://authority/…" names a host.
  bool allows_target(std::string_view target) const;

private:
  bool is_active_ = false;
  /// In lower case, IPv6 without brackets.
  std::vector<std::string> names_;
};

} // namespace troupe::http
