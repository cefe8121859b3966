#pragma once

#include "http/server/connection.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <memory>

namespace troupe::http {

/// Creates the connection for an accepted socket: encrypted if `tls` is not null. It owns the socket, which is closed
/// if this throws.
std::shared_ptr<connection> make_connection(connection_context& owner, boost::asio::io_context& io, std::uint64_t id,
                                            const arrival& came, std::shared_ptr<boost::asio::ssl::context> tls);

} // namespace troupe::http
