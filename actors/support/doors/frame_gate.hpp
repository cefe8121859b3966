#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Judges what a peer sends before CAF reads it. CAF believes its peers: it makes room for whatever length a frame
/// names, delivers any message to any actor that it knows by number or name, in the name of any sender, and wants no
/// greeting first. Past this gate comes
///
///   - the greeting, once it is known who is on the other side, and the same one again,
///   - messages of the listed kinds from that node's own actors to an actor by number,
///   - news of that node's own actors: whom they watch, and that they ended,
///   - signs of life,
///
/// each no longer than the limit. Everything else is dropped where a sound peer may send it without being asked, or
/// ends the connection. One gate per connection. Plain state: what a frame looks like is in docs/security.md.
class frame_gate {
public:
  static constexpr std::size_t header_bytes = 32;

  struct options {
    std::uint32_t max_message_bytes = 0;
    /// How a message of each kind that may pass begins. Not owned by the gate alone: it is the same for all.
    std::shared_ptr<const std::vector<std::string>> kinds;
  };

  enum class verdict : std::uint8_t {
    /// For CAF to read.
    pass,
    /// As if it had not been sent.
    drop,
    /// The connection ends.
    refuse,
  };

  explicit frame_gate(options how) : options_(std::move(how)) {}

  /// A header. `pass` only says that what follows may be waited for: a header is for CAF when its payload is, at once
  /// where it has none.
  verdict header(std::span<const std::uint8_t> bytes);

  /// What follows the header that was judged last.
  std::uint32_t payload_bytes() const noexcept { return payload_bytes_; }

  verdict payload(std::span<const std::uint8_t> bytes);

  bool greeted() const noexcept { return !identity_.empty(); }

  /// Of the peer, as it names itself; empty before its greeting.
  const std::string& identity() const noexcept { return identity_; }

  /// The last reason to drop or to refuse.
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
