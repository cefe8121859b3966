#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string_view>

namespace troupe::replay {

/// Whether this machine has memory for so much KV cache: half of it at most. The error says who wants it, and what to
/// choose smaller.
result<void> check_memory(std::uint64_t bytes, std::string_view who, std::string_view options);

/// What this process has used of processors, in seconds.
double processor_seconds();

} // namespace troupe::replay
