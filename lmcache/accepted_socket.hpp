#pragma once

#include "base/unique_descriptor.hpp"

#include <cstdint>
#include <optional>
#include <utility>

/// Sockets that ZeroMQ has accepted and may close at any time, after which the kernel gives their descriptors to
/// others.

namespace troupe::lmcache {

/// A socket under a descriptor of its own, so that nobody else's can come under it. It is the one that it was taken
/// from only if that was not closed before: compare the cookies.
class held_socket {
public:
  /// Nothing where the descriptor is closed, or is no socket, or no other one is to be had.
  static std::optional<held_socket> hold(int descriptor);

  int descriptor() const noexcept { return own_.get(); }
  /// The kernel gives each socket another one, and none twice.
  std::uint64_t cookie() const noexcept { return cookie_; }
  /// Nothing more is received or sent: whoever has the socket finds its end, and closes it. Then the peer is reset.
  void shut_down() const noexcept;

private:
  held_socket(unique_descriptor own, std::uint64_t cookie) : own_(std::move(own)), cookie_(cookie) {}

  unique_descriptor own_;
  std::uint64_t cookie_ = 0;
};

/// Bytes that have arrived at a TCP socket since it was made; 0 where the kernel does not say.
std::uint64_t received_bytes(int descriptor) noexcept;

} // namespace troupe::lmcache
