#include "actors/support/listeners/frame_gate.hpp"

#include <algorithm>
#include <cstring>

namespace troupe {

namespace {

/// The operation, which is the first byte of a header.
enum operation : std::uint8_t {
  server_handshake = 0,
  client_handshake = 1,
  direct_message = 2,
  routed_message = 3,
  watch = 4,
  ended = 5,
  sign_of_life = 6,
};

constexpr std::size_t flags_at = 3;
constexpr std::size_t length_at = 4;
/// The flag that says that the receiver is an actor of the system, by name.
constexpr std::uint8_t named_receiver = 1;

/// A node id: its kind, process and host.
constexpr std::size_t identity_bytes = 32;

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  std::uint32_t out = 0;
  for (const auto x : bytes)
    out = out << 8U | x;
  return out;
}

bool begins_with(std::span<const std::uint8_t> bytes, std::string_view with) {
  return bytes.size() >= with.size() && std::memcmp(bytes.data(), with.data(), with.size()) == 0;
}

} // namespace

frame_gate::verdict frame_gate::header(std::span<const std::uint8_t> bytes) {
  payload_bytes_ = 0;
  if (bytes.size() != header_bytes)
    return say(verdict::refuse, "a malformed header");
  operation_ = bytes[0];
  named_ = (bytes[flags_at] & named_receiver) != 0;
  const auto length = big_endian(bytes.subspan(length_at, 4));
  if (length > options_.max_message_bytes)
    return say(verdict::refuse, "a message longer than actors.max_message_bytes");
  if (!has_handshake() && operation_ != client_handshake)
    return say(verdict::refuse, "a message before the handshake");
  switch (operation_) {
  case client_handshake:
    if (length != identity_bytes)
      return say(verdict::refuse, "a malformed handshake");
    break;
  case direct_message:
  case watch:
  case ended:
    if (length == 0)
      return say(verdict::refuse, "a message without payload");
    break;
  case sign_of_life:
    if (length != 0)
      return say(verdict::refuse, "a heartbeat with payload");
    break;
  default:
    return say(verdict::refuse, "an operation that clients do not use");
  }
  payload_bytes_ = length;
  return verdict::pass;
}

frame_gate::verdict frame_gate::payload(std::span<const std::uint8_t> bytes) {
  if (bytes.size() != payload_bytes_)
    return say(verdict::refuse, "a message of another length than its header says");
  switch (operation_) {
  case client_handshake: {
    const std::string name(bytes.begin(), bytes.end());
    if (has_handshake() && name != identity_)
      return say(verdict::refuse, "a second handshake with another name");
    identity_ = name;
    return verdict::pass;
  }
  case direct_message:
    if (named_)
      return say(verdict::drop, "a message to an actor of the system");
    return std::ranges::any_of(*options_.kinds, [&](const auto& kind) { return begins_with(bytes, kind); })
               ? verdict::pass
               : say(verdict::drop, "a message that clients do not send");
  default:
    // The payload names the monitoring or ended actor, which must belong to the peer's own node.
    return begins_with(bytes, identity_) ? verdict::pass
                                         : say(verdict::refuse, "a notification about an actor of another node");
  }
}

} // namespace troupe
