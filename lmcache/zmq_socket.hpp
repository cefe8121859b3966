#pragma once

#include "lmcache/connection_table.hpp"
#include "lmcache/protocol/msgpack_reader.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <zmq.h>

/// Wrappers of ZeroMQ's handles, for the listener only.

namespace troupe::lmcache {

/// The field of a message with the moment when its connection was admitted: set by the answer to ZeroMQ's
/// authentication.
inline constexpr const char* admitted_as = "User-Id";

struct end_context {
  void operator()(void* x) const noexcept { zmq_ctx_term(x); }
};
struct close_socket {
  void operator()(void* x) const noexcept { zmq_close(x); }
};
using zmq_context = std::unique_ptr<void, end_context>;
using socket_handle = std::unique_ptr<void, close_socket>;

template <class T>
bool set_option(void* socket, int option, T value) {
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/// One frame of a message.
class zmq_frame {
public:
  zmq_frame() { zmq_msg_init(&x_); }
  zmq_frame(const zmq_frame&) = delete;
  zmq_frame& operator=(const zmq_frame&) = delete;
  ~zmq_frame() { zmq_msg_close(&x_); }

  /// False if no frame is available now.
  bool receive(void* socket) {
    for (;;) {
      if (zmq_msg_recv(&x_, socket, ZMQ_DONTWAIT) >= 0)
        return true;
      if (zmq_errno() != EINTR)
        return false;
    }
  }
  bool more() const { return zmq_msg_more(&x_) != 0; }
  protocol::byte_view bytes() { return {static_cast<const std::byte*>(zmq_msg_data(&x_)), zmq_msg_size(&x_)}; }
  std::string text() { return {static_cast<const char*>(zmq_msg_data(&x_)), zmq_msg_size(&x_)}; }
  /// The descriptor of its connection.
  int descriptor() { return zmq_msg_get(&x_, ZMQ_SRCFD); }
  /// The moment of its admission; none if it was not admitted.
  std::optional<connection_moment> admitted() {
    const char* const text = zmq_msg_gets(&x_, admitted_as);
    if (text == nullptr)
      return std::nullopt;
    const auto* const end = text + std::strlen(text);
    connection_moment out = 0;
    const auto [at, code] = std::from_chars(text, end, out);
    return code == std::errc{} && at == end ? std::optional(out) : std::nullopt;
  }

private:
  zmq_msg_t x_{};
};

} // namespace troupe::lmcache
