#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as the body of every request of the wires of slot clients, and as a rank and a name. Ends the process
/// where something is accepted that must not be, or comes out other than it went in. Returns how many readers accepted
/// it.
int read_slot_bodies(std::string_view text);

} // namespace troupe::fuzz
