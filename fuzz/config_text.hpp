#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a config; what stands behind zero bytes are overrides, as on the command line. Ends the process
/// where a config is accepted that does not come back from its own text as it is, or refused without a reason. Returns
/// how often it was accepted, as a server's and as a client's.
int read_config_text(std::string_view text);

} // namespace troupe::fuzz
