#pragma once

#include <string_view>

namespace troupe {

/// What stands for the order of bytes in pages of slot clients, which only they know. The word is part of identities
/// that stores keep, so it stays as it is.
inline constexpr std::string_view layout_of_slot_clients = "foreign";

} // namespace troupe
