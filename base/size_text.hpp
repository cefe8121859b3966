#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// A number of bytes for people: "512 B", "64 MiB", "1.46 GiB". The largest unit of which there is at least one, with
/// at most two digits behind the point, rounded. `config::format_size` is for what has to be read back exactly.
std::string size_text(std::uint64_t bytes);

} // namespace troupe
