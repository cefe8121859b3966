#pragma once

#include "lmcache/protocol/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe::lmcache {

/// Why a message is rejected.
enum class problem : std::uint8_t {
  none,
  /// It has no number or no operation, and so it cannot be answered.
  envelope,
  /// No version has the operation.
  operation,
  /// No version has this number of payloads.
  payload_count,
  /// A key that no version writes, or with invalid values.
  key,
  /// Another payload, likewise.
  payload,
  /// It is valid, but has the node copy several groups of KV caches, which is not supported.
  groups,
};

inline constexpr std::size_t problem_count = static_cast<std::size_t>(problem::groups) + 1;

/// The word for metrics, such as "payload_count".
std::string_view to_string(problem x) noexcept;

/// For people: the difference of the message from all versions. Frames are those without the client's name. Only
/// printable text of the message is included. Parses the message once more, so it is for log lines, not for every
/// message.
std::string difference_of(problem what, std::span<const protocol::byte_view> frames);

} // namespace troupe::lmcache
