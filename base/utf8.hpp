#pragma once

#include <cstddef>
#include <string_view>

namespace troupe {

/// The number of bytes of the UTF-8 character at the start of `text`, whose first byte is not ASCII; 0 where the bytes
/// are not valid UTF-8 (truncated, overlong, a surrogate, beyond U+10FFFF). Thread-safe.
std::size_t utf8_length(std::string_view text) noexcept;

} // namespace troupe
