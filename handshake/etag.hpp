#pragma once

#include <string>
#include <string_view>

namespace troupe::handshake {

/// The tag of a payload of one incarnation: equal tags mean equal bytes. 32 hexadecimal digits.
std::string etag_of(std::string_view incarnation, std::string_view payload);

} // namespace troupe::handshake
