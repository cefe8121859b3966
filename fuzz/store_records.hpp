#pragma once

#include <string>
#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a record of every kind. Its first byte is the length of the record's key, the rest behind the key
/// is its value. Ends the process where an accepted record changes in a round trip through its own bytes. Returns how
/// many kinds accepted it.
int read_store_records(std::string_view text);

/// The text of a record for `read_store_records`.
std::string record_text(std::string_view key, std::string_view value);

} // namespace troupe::fuzz
