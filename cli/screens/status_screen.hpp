#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace troupe::cli {

/// Whether the answer to `/v1/status` is one.
bool is_status(const nlohmann::json& x);

/// The same for people: one screen of so many columns, a line each.
std::string status_screen(const nlohmann::json& status, std::size_t columns = 80);

} // namespace troupe::cli
