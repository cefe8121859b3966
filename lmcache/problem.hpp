#pragma once

#include "lmcache/wire/operation.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace troupe::lmcache {

/// Why a message is not served.
enum class problem : std::uint8_t {
  none,
  /// It has no number or no operation, and so no answer either.
  envelope,
  /// The operation is in no version.
  operation,
  /// No version has so many payloads.
  payload_count,
  /// A key that no version writes, or whose values make no sense.
  key,
  /// Another payload likewise.
  payload,
  /// It is right, and about several groups of KV caches, which the node does not keep.
  groups,
};

inline constexpr std::size_t problem_count = static_cast<std::size_t>(problem::groups) + 1;

/// The word for metrics, such as "payload_count".
std::string_view to_string(problem x) noexcept;

/// For people: what of the message is as in no version, or not served. Frames are those without the client's name. Text
/// of the message is in it only as far as it can be printed. Reads the message once more, so it is for the log, and not
/// for each message.
std::string difference_of(problem what, std::span<const wire::byte_view> frames);

} // namespace troupe::lmcache
