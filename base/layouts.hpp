#pragma once

#include <string_view>

/// The values of `namespace_spec::layout`. They are part of stored identities, so they never change.

namespace troupe {

/// Elements in the order layer, part, head, token; see docs/page-format.md.
inline constexpr std::string_view layout_of_elements = "layer-part-head-token";

/// The bytes of a whole block, layer by layer, in an order that only the engine's kernels define.
inline constexpr std::string_view layout_of_whole_blocks = "layer-opaque-block";

/// The layout of slot clients' pages, whose order of bytes only they define.
inline constexpr std::string_view layout_of_slot_clients = "foreign";

} // namespace troupe
