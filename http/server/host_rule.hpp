#pragma once

#include "config/node_config.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::http {

/// Which names requests may call the server by, where it asks nobody who they are. A page in a browser on this machine
/// can have its own name lead to the loopback interface; its requests then seem to come from the same site, without an
/// Origin, and only their Host header tells.
class host_rule {
public:
  /// Names count on the loopback interface, and wherever `http.hosts` lists some; not with tokens or client
  /// certificates, which such a page does not have.
  explicit host_rule(const config::http_config& config);

  /// `authority` is "host", "host:port" or "[address]:port".
  bool allows(std::string_view authority) const;
  /// The same for a target of a request: what is no "http://authority/…" names nobody.
  bool allows_target(std::string_view target) const;

private:
  bool is_active_ = false;
  /// In small letters, IPv6 without brackets.
  std::vector<std::string> names_;
};

} // namespace troupe::http
