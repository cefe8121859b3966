#pragma once

#include "base/error.hpp"
#include "base/host_address.hpp"
#include "base/unique_descriptor.hpp"
#include "io/tcp/memory_frames.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <sys/uio.h>

namespace troupe::io::tcp {

/// An address and a port in host byte order.
struct endpoint {
  host_address address;
  std::uint16_t port = 0;
};

/// A listener on that address at a port that the system chooses: its descriptor and its endpoint.
struct listener {
  unique_descriptor descriptor;
  endpoint where;
};
result<listener> listen_on(const host_address& address);

/// Blocks SIGPIPE in a thread that has streams: writing to a broken one would end the process.
void block_broken_pipes();

/// A non-blocking connection. Belongs to one thread, which blocks SIGPIPE.
class tcp_stream {
public:
  /// How many bytes were moved; if none, whether the stream has ended.
  struct outcome {
    std::size_t bytes = 0;
    bool ended = false;
  };

  tcp_stream() = default;
  explicit tcp_stream(unique_descriptor connection);

  /// Begins to connect, from this address of the host if there is one. An unreachable address is reported by the first
  /// read or write.
  static result<tcp_stream> connect(const endpoint& where, const std::optional<host_address>& from = {});
  /// Accepts a connection of a listener; empty if none is pending.
  static tcp_stream accept(int listener);

  /// Encrypts the stream with TLS 1.3 and a key derived from the token; must be called before anything is moved. Both
  /// ends prove that they have the token before the first byte is moved. An end with another token, or with a
  /// certificate instead, fails at the first read or write. The node connects, the client answers. Written data gets a
  /// new key after `records_of_a_key` records. Errors: `io_error`.
  enum class role : std::uint8_t { asks, answers };
  result<void> encrypt(role mine, const connection_token& token,
                       std::uint64_t records_of_a_key = std::uint64_t{1} << 23U);

  explicit operator bool() const noexcept { return static_cast<bool>(descriptor_); }
  int descriptor() const noexcept { return descriptor_.get(); }
  /// The address of the other end; nothing once it has disconnected.
  std::optional<host_address> peer_address() const;

  /// Reads; at most `encrypted_bytes_most` at once from an encrypted stream.
  outcome read(std::span<const iovec> into);
  outcome write(std::span<const iovec> from);
  static constexpr std::size_t encrypted_bytes_most = std::size_t{1} << 20U;

  /// The events that `poll` must wait for: for reading, and with `writing` for writing.
  short events(bool writing) const noexcept;
  /// There is buffered data that `poll` does not report.
  bool has_more() const noexcept;
  /// Drops data that was written and not sent.
  void abort();

private:
  class encryption;
  struct encryption_end {
    void operator()(encryption* x) const noexcept;
  };

  unique_descriptor descriptor_;
  std::unique_ptr<encryption, encryption_end> encryption_;
};

} // namespace troupe::io::tcp
