#pragma once

#include "base/error.hpp"
#include "connector/capi/troupe.h"
#include "connector/stats.hpp"

#include <string>
#include <string_view>

namespace troupe::capi {

/// A text as an output.
inline troupe_bytes bytes_of(std::string_view text) noexcept {
  return {text.empty() ? nullptr : reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// A JSON object with the members of `connector_stats`; empty where no task has ended.
std::string stats_text(const connector::connector_stats& stats);

/// Parses the result of `stats_text`; an empty text gives empty statistics. Errors: invalid_argument.
result<connector::connector_stats> read_stats(std::string_view text);

} // namespace troupe::capi
