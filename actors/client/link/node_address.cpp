#include "actors/client/link/node_address.hpp"

#include "base/parse_number.hpp"
#include "base/tcp_connect.hpp"

#include <filesystem>
#include <system_error>

namespace troupe {

namespace {

bool read_endpoint(const std::string& text, node_address& out) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return false;
  out.host = text.substr(0, colon);
  if (out.host.size() > 2 && out.host.front() == '[' && out.host.back() == ']')
    out.host = out.host.substr(1, out.host.size() - 2);
  out.port = parse_number<std::uint16_t>(text.substr(colon + 1)).value_or(0);
  return out.port != 0;
}

} // namespace

result<node_address> parse_node_address(const std::string& text) {
  if (text.find("://") != std::string::npos || text.starts_with("unix:"))
    return fail(errc::invalid_argument,
                "expected the data_dir of a node, the path of its socket, or HOST:PORT as in 127.0.0.1:4600; '" + text +
                    "' is a URL, as `troupe status` takes it. Clients attach at the data_dir, or at `actors.port`, "
                    "which is not the port of HTTP");
  std::error_code ignored;
  const bool has_slash = text.find('/') != std::string::npos;
  if (node_address out; !has_slash && read_endpoint(text, out))
    return out;
  if (text.empty() || (!has_slash && !std::filesystem::exists(text, ignored)))
    return fail(
        errc::invalid_argument,
        "expected the data_dir of a node, the path of its socket, or HOST:PORT as in 127.0.0.1:4600; '" + text +
            "' is none of them: no such path exists here. For a data_dir that a node has not created yet, write " +
            (text.empty() ? "its path" : "./" + text));
  return node_address{std::filesystem::absolute(text, ignored).string(), 0};
}

std::string to_string(const node_address& x) {
  return x.is_path() ? x.host : endpoint_text(x.host, x.port);
}

} // namespace troupe
