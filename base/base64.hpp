#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// The bytes in base64: the standard alphabet of RFC 4648, padded with `=`, without line breaks. Any thread. Users link
/// troupe_base64.
std::string to_base64(std::string_view bytes);

/// The bytes of such a text. Empty where the text is not base64: its length is no multiple of four, or it has a
/// character outside the alphabet, such as a blank or a line break, or padding before its end. Unused bits of the last
/// character are ignored. Any thread.
std::optional<std::string> from_base64(std::string_view text);

} // namespace troupe
