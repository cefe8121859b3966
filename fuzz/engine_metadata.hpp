#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as what the halves of a connector say to each other, of each kind: as it is, and with header and
/// checksum made right. Ends the process where something is accepted that does not come back from its own bytes as it
/// is. Returns how many readings accepted it.
int read_engine_metadata(std::string_view text);

} // namespace troupe::fuzz
