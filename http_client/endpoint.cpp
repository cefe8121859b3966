#include "http_client/endpoint.hpp"

#include "base/parse_number.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe::client_detail {

namespace {

bool is_port(std::string_view text) {
  return parse_number<std::uint16_t>(text).value_or(0) != 0;
}

/// Whether the character may appear in a request line.
bool is_visible(char c) {
  return c > ' ' && c <= '~';
}

} // namespace

result<endpoint> parse_url(std::string_view url) {
  const auto wrong = [&](std::string_view what) {
    return fail(errc::invalid_argument, "the URL \"" + std::string(url) + "\" " + std::string(what));
  };
  constexpr std::string_view scheme_of_sockets = "unix:";
  if (url.starts_with(scheme_of_sockets) && url.size() > scheme_of_sockets.size()) {
    endpoint out;
    out.socket = url.substr(scheme_of_sockets.size());
    out.authority = "localhost";
    return out;
  }
  if (!std::ranges::all_of(url, is_visible))
    return wrong("has blanks or other characters that a URL cannot have");
  endpoint out;
  auto rest = url;
  if (rest.starts_with("https://"))
    out.tls = true;
  else if (!rest.starts_with("http://"))
    return wrong("begins with none of http://, https:// and unix:");
  rest.remove_prefix(out.tls ? 8 : 7);
  if (rest.find_first_of("?#@") != std::string_view::npos)
    return wrong("has a user, a query or a fragment, which are not supported here");
  const auto slash = std::min(rest.find('/'), rest.size());
  auto authority = rest.substr(0, slash);
  auto prefix = rest.substr(slash);
  while (prefix.ends_with('/'))
    prefix.remove_suffix(1);
  out.prefix = prefix;
  out.port = out.tls ? "443" : "80";
  out.authority = authority;
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos)
      return wrong("lacks a closing bracket");
    out.host = authority.substr(1, end - 1);
    authority.remove_prefix(end + 1);
  } else {
    const auto end = std::min(authority.find(':'), authority.size());
    out.host = authority.substr(0, end);
    authority.remove_prefix(end);
  }
  if (out.host.empty())
    return wrong("has no host");
  if (!authority.empty()) {
    if (!authority.starts_with(':') || !is_port(authority.substr(1)))
      return wrong("has no port from 1 to 65535 after its host");
    out.port = authority.substr(1);
  }
  return out;
}

} // namespace troupe::client_detail
