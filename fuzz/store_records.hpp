#pragma once

#include <string>
#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a record of every kind. Its first byte is how many bytes of the rest are the record's key, all
/// behind is its value. Ends the process where a record is accepted that does not come back from its own bytes as it
/// is. Returns how many kinds accepted it.
int read_store_records(std::string_view text);

/// The text of a record, as `read_store_records` reads it.
std::string record_text(std::string_view key, std::string_view value);

} // namespace troupe::fuzz
