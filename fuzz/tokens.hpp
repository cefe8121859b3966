#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a tokens file. Ends the process where something invalid is accepted. Returns 1 if it is accepted,
/// else 0.
int read_tokens(std::string_view text);

} // namespace troupe::fuzz
