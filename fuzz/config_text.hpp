#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a config; the parts behind zero bytes are overrides, as on the command line. Ends the process
/// where an accepted config changes in a round trip through its own text, or where a refusal has no reason. Returns how
/// often it was accepted, as a server's and as a client's.
int read_config_text(std::string_view text);

} // namespace troupe::fuzz
