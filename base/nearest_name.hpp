#pragma once

#include <span>
#include <string_view>

namespace troupe {

/// The name that was probably meant: one that is a typing mistake or two away. Empty if there is none.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

} // namespace troupe
