#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as every kind of message between the halves of a connector: unchanged, and with corrected header and
/// checksum. Ends the process where something accepted changes in a round trip through its own bytes. Returns how many
/// readings accepted it.
int read_engine_metadata(std::string_view text);

} // namespace troupe::fuzz
