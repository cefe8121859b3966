#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as everything that a client sends on one connection: at once, in pieces, and with hardly any memory.
/// Ends the process where the pieces make a difference, or more memory is used than permitted. Returns how many
/// requests were complete.
int read_requests(std::string_view text);

} // namespace troupe::fuzz
