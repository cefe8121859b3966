#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

/// What this host, or the container that the process is in, has of memory. For defaults and for what is told to people:
/// all of it may change the next moment.

namespace troupe {

/// `MemAvailable` of the text of /proc/meminfo, in bytes; nothing if it is not there.
std::optional<std::uint64_t> available_of_meminfo(std::string_view text);

/// What a control group leaves, from the texts of its memory.max and memory.current; nothing if it has no limit.
std::optional<std::uint64_t> left_of_group(std::string_view max, std::string_view current);

/// Bytes that could be taken without pushing others out: the least of what the host and this process's control groups
/// say; 0 if nobody says anything.
std::uint64_t available_memory();

/// How much memory this process may lock; nothing if that has no limit, by RLIMIT_MEMLOCK or by its capabilities.
std::optional<std::uint64_t> lockable_memory();

} // namespace troupe
