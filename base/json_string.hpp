#pragma once

#include <string>
#include <string_view>

namespace troupe {

/// Appends `text` as a JSON string with its quotes, escaped. Bytes that are not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

} // namespace troupe
