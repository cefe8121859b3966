#pragma once

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// What can go wrong, as a value. The same codes travel in messages, per key or per request, so their numbers are
/// part of the wire: append, never renumber.
enum class errc : std::uint8_t {
  ok = 0,
  /// No such key, or not complete, or no page of this rank: a miss.
  not_found,
  /// The key already has a live page of this rank; nothing is to be written.
  exists,
  /// Another writer holds a reservation of this key and rank.
  busy,
  /// No slot is free and nothing may be evicted.
  full,
  /// A reservation or lease passed its deadline or was released.
  expired,
  /// The caller does not own what it names.
  not_owner,
  /// The slot has been given to another key since: the generation differs.
  stale,
  /// A slot, rank, block or offset outside of what exists.
  out_of_range,
  /// The request itself makes no sense.
  invalid_argument,
  /// No namespace with this identity.
  unknown_namespace,
  /// A namespace, slab or page belongs to something else.
  identity_mismatch,
  /// The bytes are not what was saved: checksum or page identity differ.
  corrupt,
  /// The operating system reported an error.
  io_error,
  /// The disk is full.
  no_space,
  /// A deadline passed.
  timeout,
  /// Given up on purpose.
  cancelled,
  /// The other node cannot be reached.
  unreachable,
  /// The node is draining.
  shutting_down,
  /// A configured limit was exceeded.
  limit_exceeded,
  /// The platform lacks what was asked for.
  unsupported,
  /// The slab file was truncated or removed while in use.
  slab_damaged,
  /// A defect of Troupe itself.
  internal,
  /// A GPU or its driver reported an error.
  device_error,
  /// The host or a configured limit has no memory left.
  no_memory,
};

/// Number of codes; anything at or above it that arrives in a message is malformed.
inline constexpr std::uint8_t errc_count = static_cast<std::uint8_t>(errc::no_memory) + 1;

/// The code that a number in a message means; `internal` for one that is malformed.
constexpr errc errc_from_wire(std::uint64_t code) noexcept {
  return code < errc_count ? static_cast<errc>(code) : errc::internal;
}

/// The name of the code, as it stands in logs and reports.
std::string_view to_string(errc code) noexcept;

/// A code and a sentence that helps: what happened, to what, and the way out where there is one.
struct error {
  errc code = errc::internal;
  std::string text;
};

/// "code: text"
std::string to_string(const error& e);

/// A value or an error.
template <class T>
using result = tl::expected<T, error>;

/// Makes the error side of a `result`.
inline tl::unexpected<error> fail(errc code, std::string text) {
  return tl::unexpected<error>(error{code, std::move(text)});
}

/// "what: text of errno", with the code that fits (no_space for ENOSPC and EDQUOT, no_memory for ENOMEM, else
/// io_error).
error system_error(int errno_value, std::string_view what);

} // namespace troupe
