#pragma once

#include "http/server/connection.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <memory>

namespace troupe::http {

/// The connection over a socket that was accepted: encrypted if `tls` is not null. The socket is its own, and closed if
/// this throws.
std::shared_ptr<connection> make_connection(connection_context& owner, boost::asio::io_context& io, std::uint64_t id,
                                            const arrival& came, std::shared_ptr<boost::asio::ssl::context> tls);

} // namespace troupe::http
