#pragma once

#include "base/error.hpp"
#include "config/node_config.hpp"

#include <boost/asio/ssl/context.hpp>
#include <memory>

namespace troupe::http {

/// Loads certificate and key, and the authorities of client certificates, if there are any.
result<std::shared_ptr<boost::asio::ssl::context>> load_tls(const config::http_tls_config& config);

} // namespace troupe::http
