#pragma once

#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <optional>
#include <utility>

/// Handling of sockets that ZeroMQ has accepted and may close at any time, after which the kernel reuses their
/// descriptors.

namespace troupe {

/// A duplicate descriptor of a socket, which stays valid when the original is closed. It refers to the intended socket
/// only if that was not closed before: compare the cookies.
class held_socket {
public:
  /// None if the descriptor is closed, is not a socket, or no other descriptor is available.
  static std::optional<held_socket> hold(int descriptor);

  int descriptor() const noexcept { return own_.get(); }
  /// The kernel's unique, never reused number of the socket.
  std::uint64_t cookie() const noexcept { return cookie_; }
  /// Shuts the socket down in both directions, so that its owner finds the end and closes it. Then the peer gets a
  /// reset.
  void shut_down() const noexcept;

private:
  held_socket(unique_descriptor own, std::uint64_t cookie) : own_(std::move(own)), cookie_(cookie) {}

  unique_descriptor own_;
  std::uint64_t cookie_ = 0;
};

/// Bytes received by a TCP socket in its lifetime; 0 if the kernel does not say.
std::uint64_t received_bytes(int descriptor) noexcept;

} // namespace troupe
