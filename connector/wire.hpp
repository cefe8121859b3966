#pragma once

#include "base/error.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

/// The encoding of messages between the halves of a connector, which their engine carries from one process to another:
///
///     magic "TRPE" (4)  version (2)  kind (2)  bytes of the body (8)  XXH3 of the body (8)  body
///
/// Numbers are little-endian; a text or a list is its length (4) and its elements. Both halves of an engine are of one
/// build in practice, so another version is refused and not translated. The checksum detects damage, not forgery: a
/// decoder checks each length against the available bytes before it allocates memory.
namespace troupe::connector {

inline constexpr std::uint16_t wire_version = 2;

/// Bytes before the body.
inline constexpr std::size_t wire_header_bytes = 24;

/// Fills `out`, whose memory is reused, with the metadata of a step.
void encode(const connector_metadata& metadata, std::vector<std::uint8_t>& out);

/// The same for the results of stores.
void encode(std::span<const store_outcome> outcomes, std::vector<std::uint8_t>& out);

/// Errors: corrupt where the bytes are not such metadata, or are damaged; unsupported where they have another version.
/// Allocates at most a small multiple of the size of the bytes, whatever their content.
result<connector_metadata> decode_metadata(std::span<const std::uint8_t> bytes);

/// The same for the results of stores.
result<std::vector<store_outcome>> decode_outcomes(std::span<const std::uint8_t> bytes);

/// Corrects header and checksum for the bytes after the header, for tests that damage the body. Bytes without a header
/// are not changed.
void seal_wire(std::span<std::uint8_t> bytes);

} // namespace troupe::connector
