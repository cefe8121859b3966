#pragma once

#include <span>
#include <string_view>

namespace troupe {

/// The closest of the names, at a distance of one or two typing mistakes. Empty if there is none.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

} // namespace troupe
