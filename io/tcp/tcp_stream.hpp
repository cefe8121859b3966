#pragma once

#include "base/error.hpp"
#include "base/unique_descriptor.hpp"
#include "io/tcp/memory_frames.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/uio.h>

namespace troupe::io::tcp {

/// An address and a port of IPv4, in the byte order of the host.
struct endpoint {
  std::uint32_t address = 0;
  std::uint16_t port = 0;
};

/// A listener on that address, at a port that the system chooses: it, and where it is.
struct listener {
  unique_descriptor descriptor;
  endpoint where;
};
result<listener> listen_on(std::uint32_t address);

/// For a thread that has streams: the system would end the process where one is broken.
void block_broken_pipes();

/// A connection that nobody waits for: what cannot be done at once says so. Belongs to one thread, which blocks
/// SIGPIPE.
class tcp_stream {
public:
  /// How many bytes were moved; if none, whether there may be some later.
  struct outcome {
    std::size_t bytes = 0;
    bool ended = false;
  };

  tcp_stream() = default;
  explicit tcp_stream(unique_descriptor connection);

  /// Begins to connect. What cannot be reached ends with the first read or write.
  static result<tcp_stream> connect(const endpoint& where);
  /// Of a listener; empty where nobody is waiting.
  static tcp_stream accept(int listener);

  /// Before anything is moved: from now on all is encrypted, by TLS 1.3 with a key that follows from the token, which
  /// both ends prove to have before the first byte is moved. Who has another, or shows a certificate instead, ends with
  /// the first read or write. The node asks, the client answers. What is written gets a new key after that many
  /// records. Errors: `io_error`.
  enum class role : std::uint8_t { asks, answers };
  result<void> encrypt(role mine, const connection_token& token,
                       std::uint64_t records_of_a_key = std::uint64_t{1} << 23U);

  explicit operator bool() const noexcept { return static_cast<bool>(descriptor_); }
  int descriptor() const noexcept { return descriptor_.get(); }
  /// From where the other end has come.
  std::uint32_t peer_address() const;

  /// Of a stream that is encrypted, at most `encrypted_bytes_most` at once.
  outcome read(std::span<const iovec> into);
  outcome write(std::span<const iovec> from);
  static constexpr std::size_t encrypted_bytes_most = std::size_t{1} << 20U;

  /// What `poll` is to wait for, for reading, and for writing where something is to be written.
  short events(bool writing) const noexcept;
  /// There is something to be read of which `poll` does not know.
  bool has_more() const noexcept;
  /// What was written and not sent is dropped.
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
