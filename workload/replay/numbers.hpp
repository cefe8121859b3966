#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace troupe::replay {

/// Parses `PREFIX:NUMBER,NUMBER,…`; any trailing part may be omitted, and so may the colon. An error shows the form.
std::optional<error> parse_numbers(std::string_view text, std::string_view prefix, std::string_view form,
                                   std::span<std::uint64_t* const> fields, std::uint64_t most);

} // namespace troupe::replay
