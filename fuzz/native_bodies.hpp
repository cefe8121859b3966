#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as the body of every request of the native API, and as a key and an id. Ends the process where
/// something invalid is accepted. Returns how many readers accepted it.
int read_native_bodies(std::string_view text);

} // namespace troupe::fuzz
