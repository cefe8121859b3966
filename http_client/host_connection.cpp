#include "http_client/host_connection.hpp"

#include "base/tcp_connect.hpp"

namespace troupe::client_detail {

result<void> connect_to_host(boost::asio::ip::tcp::socket& socket, const std::string& host, std::uint16_t port,
                             const std::string& authority, duration limit, const std::function<bool()>& cancelled) {
  using boost::asio::ip::tcp;
  const auto addresses = resolve_host(host, port);
  if (!addresses)
    return fail(errc::unreachable, authority + ": no address found: " + addresses.error().text);
  auto made = connect_to_any(*addresses, limit, cancelled);
  if (!made)
    return fail(made.error().code == errc::timeout ? errc::timeout : errc::unreachable,
                authority + ": cannot connect: " + made.error().text);
  boost::system::error_code code;
  const bool is_ipv6 = is_ipv6_socket(made->get());
  socket.assign(is_ipv6 ? tcp::v6() : tcp::v4(), made->release(), code);
  if (code)
    return fail(errc::unreachable, authority + ": cannot connect: " + code.message());
  return {};
}

} // namespace troupe::client_detail
