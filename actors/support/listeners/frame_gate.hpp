#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A filter for the frames of one peer, applied before CAF reads them. CAF trusts its peers: it allocates whatever
/// length a frame names, delivers any message to any actor that it knows by number or name, in the name of any sender,
/// and requires no handshake first. The gate passes only
///
///   - the handshake, once the peer is authenticated, and repetitions of the same one,
///   - messages of the listed kinds from that node's own actors to an actor by number,
///   - monitor and down notifications about that node's own actors,
///   - heartbeats,
///
/// each no longer than the limit. Everything else is dropped where a correct peer may send it as well, or ends the
/// connection. There is one gate per connection. Plain state; docs/security.md describes the frames.
class frame_gate {
public:
  static constexpr std::size_t header_bytes = 32;

  struct options {
    std::uint32_t max_message_bytes = 0;
    /// The first bytes of each kind of message that may pass. Shared by all gates.
    std::shared_ptr<const std::vector<std::string>> kinds;
  };

  enum class verdict : std::uint8_t {
    /// CAF reads the frame.
    pass,
    /// The frame is ignored.
    drop,
    /// The connection is ended.
    refuse,
  };

  explicit frame_gate(options how) : options_(std::move(how)) {}

  /// Judges a header. `pass` means that its payload may be received. CAF gets the header together with the payload, or
  /// at once where there is none.
  verdict header(std::span<const std::uint8_t> bytes);

  /// The payload length of the header that was judged last.
  std::uint32_t payload_bytes() const noexcept { return payload_bytes_; }

  verdict payload(std::span<const std::uint8_t> bytes);

  bool has_handshake() const noexcept { return !identity_.empty(); }

  /// The name that the peer gave in its handshake; empty before it.
  const std::string& identity() const noexcept { return identity_; }

  /// The reason for the last `drop` or `refuse`.
  std::string_view reason() const noexcept { return reason_; }

private:
  verdict say(verdict what, std::string_view why) {
    reason_ = why;
    return what;
  }

  options options_;
  std::string identity_;
  std::string_view reason_;
  std::uint32_t payload_bytes_ = 0;
  std::uint8_t operation_ = 0;
  bool named_ = false;
};

} // namespace troupe
