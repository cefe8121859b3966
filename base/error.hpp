#pragma once

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// The kinds of errors, as a value. Messages contain the same codes, per key or per request, so their numbers are part
/// of the protocol: append, never renumber.
enum class errc : std::uint8_t {
  ok = 0,
  /// A miss: the key does not exist, is not complete, or has no page of this rank.
  not_found,
  /// The key already has a live page of this rank; nothing is to be written.
  exists,
  /// Another writer holds a reservation of this key and rank.
  busy,
  /// No slot is free and nothing may be evicted.
  full,
  /// A reservation or lease passed its deadline or was released.
  expired,
  /// The caller does not own the object that it names.
  not_owner,
  /// The slot now belongs to another key: the generation differs.
  stale,
  /// A slot, rank, block or offset out of range.
  out_of_range,
  /// The request itself is not valid.
  invalid_argument,
  /// No namespace with this identity.
  unknown_namespace,
  /// A namespace, slab or page has another identity.
  identity_mismatch,
  /// The bytes are not the saved ones: checksum or page identity differ.
  corrupt,
  /// The operating system reported an error.
  io_error,
  /// The disk is full, or this node may not write there until its claim is valid again: a retry may help.
  no_space,
  /// A deadline passed.
  timeout,
  /// Cancelled by the caller.
  cancelled,
  /// The other node is unreachable.
  unreachable,
  /// The node is draining.
  shutting_down,
  /// A configured limit was exceeded.
  limit_exceeded,
  /// The platform does not support the operation.
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

/// The number of codes; a code in a message at or above it is malformed.
inline constexpr std::uint8_t errc_count = static_cast<std::uint8_t>(errc::no_memory) + 1;

/// The code of a number in a message; `internal` for a malformed one.
constexpr errc errc_from_wire(std::uint64_t code) noexcept {
  return code < errc_count ? static_cast<errc>(code) : errc::internal;
}

/// The name of the code in logs and reports.
std::string_view to_string(errc code) noexcept;

/// A code and a sentence: what happened, to what, and the way out where there is one.
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
