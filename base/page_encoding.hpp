#pragma once

#include <cstdint>
#include <string_view>

namespace troupe {

/// How the bytes of a page are stored. The numbers are in page headers. The identity of a page does not depend on it:
/// readers decode what they find.
enum class page_encoding : std::uint32_t {
  /// As they are.
  raw = 0,
  /// Lossless compression of BF16 elements, version 1 (codec/bf16_format.hpp).
  bf16 = 1,
};

constexpr bool is_known(page_encoding x) noexcept {
  return x == page_encoding::raw || x == page_encoding::bf16;
}

constexpr std::string_view to_string(page_encoding x) noexcept {
  return x == page_encoding::bf16 ? "bf16" : "raw";
}

} // namespace troupe
