#include "http/server/host_rule.hpp"

#include "base/text_parts.hpp"
#include "http/server/text.hpp"

#include <algorithm>

namespace troupe::http {

namespace {

/// Without port, brackets and the trailing dot of a complete name.
std::string host_of(std::string_view authority) {
  if (authority.starts_with('[')) {
    authority = authority.substr(1, authority.find(']') - 1);
  } else if (const auto colon = authority.find(':'); colon == authority.rfind(':')) {
    authority = authority.substr(0, colon);
  }
  if (authority.ends_with('.'))
    authority.remove_suffix(1);
  std::string out{authority};
  std::ranges::transform(out, out.begin(), to_lower);
  return out;
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

} // namespace

host_rule::host_rule(const config::http_config& config)
    : is_active_(!config.tokens_file && !config.tls.client_ca && (is_loopback(config.host) || !config.hosts.empty())),
      names_{"localhost", "127.0.0.1", "::1", host_of(config.host)} {
  for (std::string_view rest = config.hosts; !rest.empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    names_.push_back(host_of(trimmed(rest.substr(0, comma))));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
}

bool host_rule::allows(std::string_view authority) const {
  return !is_active_ || std::ranges::find(names_, host_of(authority)) != names_.end();
}

bool host_rule::allows_target(std::string_view target) const {
  if (!is_active_ || target.starts_with('/'))
    return true;
  const auto slashes = target.find("://");
  if (slashes == std::string_view::npos)
    return true;
  target.remove_prefix(slashes + 3);
  return allows(target.substr(0, target.find_first_of("/?#")));
}

} // namespace troupe::http
