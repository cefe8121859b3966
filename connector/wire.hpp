#pragma once

#include "base/error.hpp"
#include "connector/types.hpp"

#include <cstdint>
#include <span>
#include <vector>

/// What the halves of a connector say to each other, as bytes: their engine carries them from one process to another.
///
///     magic "TRPE" (4)  version (2)  kind (2)  bytes of the body (8)  XXH3 of the body (8)  body
///
/// Numbers are little-endian; a text or a list is its length (4) and its elements. Both halves of an engine are of one
/// build in practice, so another version is refused and not translated. The checksum finds damage, not malice: whoever
/// decodes checks each length against the bytes that are there, before it makes room for anything.
namespace troupe::connector {

inline constexpr std::uint16_t wire_version = 1;

/// Bytes before the body.
inline constexpr std::size_t wire_header_bytes = 24;

/// Fills `out`, whose memory is used again, with the metadata of a step.
void encode(const connector_metadata& metadata, std::vector<std::uint8_t>& out);

/// Likewise with what became of stores.
void encode(std::span<const store_outcome> outcomes, std::vector<std::uint8_t>& out);

/// Errors: corrupt where the bytes are not such metadata, or are damaged; unsupported where they are of another
/// version. Takes no more than a small multiple of the bytes of memory, whatever they are.
result<connector_metadata> decode_metadata(std::span<const std::uint8_t> bytes);

/// Likewise.
result<std::vector<store_outcome>> decode_outcomes(std::span<const std::uint8_t> bytes);

/// Makes header and checksum right for what stands behind the header, for tests that damage the body. Bytes that have
/// no header stay as they are.
void seal_wire(std::span<std::uint8_t> bytes);

} // namespace troupe::connector
