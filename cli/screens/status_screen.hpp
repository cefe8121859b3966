#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace troupe::cli {

/// Whether the answer to `/v1/status` has the form of a status.
bool is_status(const nlohmann::json& x);

/// The status as text for people: one screen of this many columns.
std::string status_screen(const nlohmann::json& status, std::size_t columns = 80);

} // namespace troupe::cli
