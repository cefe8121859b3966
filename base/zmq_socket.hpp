#pragma once

#include "base/error.hpp"

#include <cerrno>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <zmq.h>

/// Wrappers of ZeroMQ's handles. Users link ZeroMQ themselves.

namespace troupe::zmq {

struct end_context {
  void operator()(void* x) const noexcept { zmq_ctx_term(x); }
};
struct close_socket {
  void operator()(void* x) const noexcept { zmq_close(x); }
};
using context_handle = std::unique_ptr<void, end_context>;
using socket_handle = std::unique_ptr<void, close_socket>;

template <class T>
bool set_option(void* socket, int option, T value) {
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

/// The failure of the last call. `busy`, with `if_busy` behind the cause, where another socket has the address;
/// `invalid_argument` for an address that this machine does not have; else `io_error`.
inline tl::unexpected<error> failure(const std::string& what, std::string_view if_busy) {
  const auto code = zmq_errno();
  const auto kind = code == EADDRINUSE                        ? errc::busy
                    : code == ENODEV || code == EADDRNOTAVAIL ? errc::invalid_argument
                                                              : errc::io_error;
  return fail(kind, what + ": " + zmq_strerror(code) + (kind == errc::busy ? "; " + std::string(if_busy) : ""));
}

/// One frame of a message.
class frame {
public:
  frame() { zmq_msg_init(&x_); }
  frame(const frame&) = delete;
  frame& operator=(const frame&) = delete;
  ~frame() { zmq_msg_close(&x_); }

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
  std::span<const std::byte> bytes() { return {static_cast<const std::byte*>(zmq_msg_data(&x_)), zmq_msg_size(&x_)}; }
  std::string text() { return {static_cast<const char*>(zmq_msg_data(&x_)), zmq_msg_size(&x_)}; }
  /// The descriptor of its connection.
  int descriptor() { return zmq_msg_get(&x_, ZMQ_SRCFD); }
  /// What the message says under this name; null if nothing.
  const char* property(const char* name) { return zmq_msg_gets(&x_, name); }

private:
  zmq_msg_t x_{};
};

/// Receives the frames of a message behind `last`, and drops them.
inline void drop_rest(void* socket, const frame& last) {
  for (bool more = last.more(); more;) {
    frame rest;
    more = rest.receive(socket) && rest.more();
  }
}

} // namespace troupe::zmq
