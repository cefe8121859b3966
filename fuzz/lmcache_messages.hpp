#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a message of a client of LMCache: frames, each preceded by its length in two bytes. Ends the
/// process where an accepted message lacks a part that its operation requires, or where a refusal is not one
/// MessagePack value. Returns whether the message is valid.
bool read_lmcache_message(std::string_view text);

} // namespace troupe::fuzz
