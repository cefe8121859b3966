#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::lmcache {

/// Whether a file of this name is a device that computes, such as a GPU: any below /dev that is neither a terminal, nor
/// memory, nor one of those that every process may open.
bool is_device_name(std::string_view path) noexcept;

/// Whether a process has such a device open. None if that cannot be seen: it is not known, has ended, or runs as a user
/// whose files this process may not read.
std::optional<bool> has_device_open(std::int32_t process);

} // namespace troupe::lmcache
