#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as the requests of one connection to the handshake directory, each answered before the next is read.
/// Ends the process where an answer is not the required JSON, where a payload is not served byte for byte, or where the
/// directory contradicts itself. Returns how many requests were understood.
int read_handshakes(std::string_view text);

} // namespace troupe::fuzz
