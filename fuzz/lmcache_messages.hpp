#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a message of a client of LMCache: frames with their length, two bytes, in front of each. Ends the
/// process where a message is taken for right that lacks what its operation needs, or where a refusal is not one
/// MessagePack value. Returns whether it is a right message.
bool read_lmcache_message(std::string_view text);

} // namespace troupe::fuzz
