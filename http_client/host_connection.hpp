#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <string>

namespace troupe::client_detail {

/// Resolves a host, and connects the socket to the first of its addresses that accepts: see `connect_to_any`, also for
/// `cancelled`. Both together take `limit` at most. Errors: `timeout` where all addresses or the name servers were
/// silent, else `unreachable`; their text begins with `authority`.
result<void> connect_to_host(boost::asio::ip::tcp::socket& socket, const std::string& host, std::uint16_t port,
                             const std::string& authority, duration limit, const std::function<bool()>& cancelled = {});

} // namespace troupe::client_detail
