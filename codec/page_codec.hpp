#pragma once

#include "base/error.hpp"
#include "base/page_encoding.hpp"
#include "codec/bf16_format.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// Lossless compression of BF16 payloads on the host (codec/bf16_format.hpp has the format). All functions may be
/// called from any thread, keep no state, allocate no memory but for the texts of errors, and do not throw.

namespace troupe::codec {

/// The implementations of the host. All write the same bytes.
enum class instructions : std::uint8_t { plain, avx2, avx512 };

std::string_view to_string(instructions x) noexcept;

/// The implementations that this processor can run, the fastest one last.
std::vector<instructions> available_instructions();

/// The length in bytes of an encoded payload. It depends on that of the payload alone. `invalid_argument` for lengths
/// that have no encoding: odd ones, 0, those above `max_payload_bytes`, and those whose encoding would not be shorter.
result<std::uint64_t> encoded_bytes(std::uint64_t payload_bytes);

/// The bytes that a page with such a payload has when it is stored like this; 0 if no such payload has that encoding.
std::uint64_t stored_bytes(page_encoding encoding, std::uint64_t payload_bytes) noexcept;

/// What became of a payload.
enum class outcome : std::uint8_t {
  encoded,
  /// Its exponents differ too much: it has no encoding and is to be stored as it is.
  does_not_fit,
};

/// Encodes `payload`, as elements of BF16, into `to`, which has exactly `encoded_bytes` of it; else `invalid_argument`.
/// All of `to` is written, or, if the payload does not fit, any part of it. The two must not overlap; neither has to be
/// aligned.
result<outcome> encode(std::span<const std::byte> payload, std::span<std::byte> to);
result<outcome> encode(std::span<const std::byte> payload, std::span<std::byte> to, instructions with);

/// Decodes what `encode` wrote; `payload` has exactly the bytes that were encoded, and every bit of them is as it was.
/// Reads and writes within the spans whatever the bytes are. `corrupt` for bytes that no encoder wrote, as far as
/// their structure shows it: a checksum has to find the rest. The payload is unspecified after an error.
/// `invalid_argument` if the lengths do not belong together.
result<void> decode(std::span<const std::byte> encoded, std::span<std::byte> payload);
result<void> decode(std::span<const std::byte> encoded, std::span<std::byte> payload, instructions with);

} // namespace troupe::codec
