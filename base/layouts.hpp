#pragma once

#include <string_view>

/// Words of `namespace_spec::layout`. They are part of identities that stores keep, so they stay as they are.

namespace troupe {

/// Elements in the order of layers, parts, heads, tokens; see docs/page-format.md.
inline constexpr std::string_view layout_of_elements = "layer-part-head-token";

/// The bytes of a whole block, layer by layer, in an order that only the engine's kernels know.
inline constexpr std::string_view layout_of_whole_blocks = "layer-opaque-block";

/// What stands for the order of bytes in pages of slot clients, which only they know.
inline constexpr std::string_view layout_of_slot_clients = "foreign";

} // namespace troupe
