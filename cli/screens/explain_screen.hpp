#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace troupe::cli {

/// Whether this can be a node's answer to `/v1/explain`.
bool is_explanation(const nlohmann::json& x);

/// The lookups of an answer, the oldest first, and why each did not find more, in lines of that many columns.
std::string explain_screen(const nlohmann::json& x, std::size_t columns);

} // namespace troupe::cli
