#pragma once

#include "base/error.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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

/// What ZeroMQ reports about the connections of a socket. To be declared behind the socket, so that it ends first.
class monitor {
public:
  struct report {
    /// One of ZMQ_EVENT_….
    int event = 0;
    /// For most of them, the descriptor of the connection.
    int value = 0;
  };

  monitor() = default;
  monitor(const monitor&) = delete;
  monitor& operator=(const monitor&) = delete;
  ~monitor() { close(); }

  /// `events` are reported from now on, by way of an `inproc://` address that nothing else of the context has. False if
  /// ZeroMQ refuses.
  bool open(void* context, void* watched, const char* address, int events) {
    if (zmq_socket_monitor(watched, address, events) != 0)
      return false;
    watched_ = watched;
    reports_.reset(::zmq_socket(context, ZMQ_PAIR));
    return reports_ && set_option(reports_.get(), ZMQ_LINGER, 0) && set_option(reports_.get(), ZMQ_RCVHWM, 0) &&
           zmq_connect(reports_.get(), address) == 0;
  }

  /// Does nothing if it is not open.
  void close() noexcept {
    // Reports are switched off: otherwise ZeroMQ's thread would wait for a reader.
    if (watched_ != nullptr)
      zmq_socket_monitor(std::exchange(watched_, nullptr), nullptr, 0);
    reports_.reset();
  }

  /// Readable when there is a report.
  void* socket() const noexcept { return reports_.get(); }

  /// None if there is none now.
  std::optional<report> next() {
    frame x;
    if (!x.receive(reports_.get()))
      return std::nullopt;
    std::uint16_t event = 0;
    std::uint32_t value = 0;
    if (const auto bytes = x.bytes(); bytes.size() >= sizeof event + sizeof value) {
      std::memcpy(&event, bytes.data(), sizeof event);
      std::memcpy(&value, bytes.data() + sizeof event, sizeof value);
    }
    drop_rest(reports_.get(), x);
    return report{event, static_cast<int>(value)};
  }

private:
  void* watched_ = nullptr;
  socket_handle reports_;
};

} // namespace troupe::zmq
