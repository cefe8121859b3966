#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as the body of every request of the protocols of slot clients, and as a rank and a name. Ends the
/// process where something invalid is accepted, or changes in a round trip. Returns how many readers accepted it.
int read_slot_bodies(std::string_view text);

} // namespace troupe::fuzz
