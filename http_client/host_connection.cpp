#include "http_client/host_connection.hpp"

#include "base/tcp_connect.hpp"

#include <chrono>

namespace troupe::client_detail {

result<void> connect_to_host(boost::asio::ip::tcp::socket& socket, const std::string& host, std::uint16_t port,
                             const std::string& authority, duration limit, const std::function<bool()>& cancelled) {
  using boost::asio::ip::tcp;
  const auto failed = [&](const error& why, const char* doing) {
    return fail(why.code == errc::timeout ? errc::timeout : errc::unreachable, authority + doing + why.text);
  };
  const auto until = later(std::chrono::steady_clock::now(), limit);
  const auto addresses = resolve_host(host, port, limit, cancelled);
  if (!addresses)
    return failed(addresses.error(), ": no address found: ");
  auto made = connect_to_any(*addresses, until - std::chrono::steady_clock::now(), cancelled);
  if (!made)
    return failed(made.error(), ": cannot connect: ");
  boost::system::error_code code;
  const bool is_ipv6 = is_ipv6_socket(made->get());
  socket.assign(is_ipv6 ? tcp::v6() : tcp::v4(), made->release(), code);
  if (code)
    return fail(errc::unreachable, authority + ": cannot connect: " + code.message());
  return {};
}

} // namespace troupe::client_detail
