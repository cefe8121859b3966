#pragma once

#include "io/page.hpp"
#include "io/slab/slab_file.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

/// The last 4 KiB of a slab file, which identify the file. docs/page-format.md has the layout.

namespace troupe::io {

/// Versions of a slab file: with fixed length, growing, and growing with sparse slots. Each has its own number so that
/// a node without support for it refuses it.
inline constexpr std::uint32_t version_of_fixed = 1;
inline constexpr std::uint32_t version_of_growing = 2;
inline constexpr std::uint32_t version_of_sparse = 3;

using slab_trailer_block = std::array<std::byte, slab_trailer_bytes>;

/// Makes the trailer of the slab; names longer than 255 bytes are cut.
slab_trailer_block make_slab_trailer(const slab_spec& spec);

/// The spec from the trailer, without a path; nothing if it is no valid trailer of this version.
std::optional<slab_spec> read_slab_trailer(std::span<const std::byte> block);

/// "rank 3 of namespace 'llama' (0123…), 1000 slots of 69632 bytes"
std::string describe_slab(const slab_spec& spec);

} // namespace troupe::io
