#pragma once

#include "messages/messages.hpp"

#include <functional>

namespace troupe {

/// A function that opens a new connection to a handshake directory each time it is called; the previous one may have
/// ended with its node, or with the connection to it. `then` is called once, from any thread, possibly before the
/// opener returns. The opener may be called from any thread, and does not block.
using directory_opener = std::function<void(std::function<void(result<handshake_proxy_actor>)> then)>;

/// An opener that always returns the same connection.
inline directory_opener open_connection(handshake_proxy_actor connection) {
  return [connection = std::move(connection)](const std::function<void(result<handshake_proxy_actor>)>& then) {
    then(connection);
  };
}

} // namespace troupe
