#pragma once

#include "base/unique_descriptor.hpp"
#include "tests/catch.hpp"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>

namespace troupe::test {

/// A raw connection that speaks a given part of ZeroMQ's protocol (ZMTP 3).
struct raw_zmq_peer {
  static constexpr std::chrono::seconds patience{60};
  unique_descriptor socket;

  explicit raw_zmq_peer(std::uint16_t port) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }

  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const auto sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0)
        return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Until the other end has closed.
  bool ends() const {
    timeval wait{};
    wait.tv_sec = patience.count();
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    std::array<char, 4096> buffer{};
    for (;;) {
      const auto got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
        return true;
      if (got < 0)
        return false;
    }
  }
  /// The first bytes of a client: a greeting of 64 bytes with the mechanism NULL, and the kind of its socket.
  void shake_hands(std::string_view kind = "DEALER") const {
    std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
    greeting.resize(64, '\0');
    auto ready = std::string("\x05READY\x0bSocket-Type\0\0\0", 21) + static_cast<char>(kind.size());
    ready.append(kind);
    REQUIRE(send(greeting));
    REQUIRE(send(std::string("\x04", 1) + static_cast<char>(ready.size()) + ready));
  }
  /// Waits until the other end has sent its greeting; earlier data is an error to it.
  void wait_until_ready() const {
    std::array<char, 64 + 16> buffer{};
    REQUIRE(::recv(socket.get(), buffer.data(), buffer.size(), MSG_WAITALL) > 64);
  }
};

} // namespace troupe::test
