#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string_view>

namespace troupe::replay {

/// Checks whether this machine has memory for so much KV cache, at most half of it. The error names the user of the
/// memory, and the options to lower.
result<void> check_memory(std::uint64_t bytes, std::string_view who, std::string_view options);

/// Processor time of this process, in seconds.
double processor_seconds();

} // namespace troupe::replay
