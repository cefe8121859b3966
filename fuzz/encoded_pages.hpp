#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::fuzz {

/// Reads the text as a payload, and as an encoded payload behind two bytes with the number of its elements. Ends the
/// process where implementations differ, or where a payload is not the same after encoding and decoding. Returns how
/// many of the two were accepted.
int read_encoded_page(std::string_view text);

/// The text of an encoded payload of so many elements for `read_encoded_page`.
std::string encoded_page_text(std::size_t elements, std::string_view encoded);

} // namespace troupe::fuzz
