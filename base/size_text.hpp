#pragma once

#include <cstdint>
#include <string>

namespace troupe {

/// A number of bytes as readable text: "512 B", "64 MiB", "1.46 GiB". In the largest unit with a value of at least one,
/// with at most two decimals, rounded. `config::format_size` gives an exact text that can be parsed back.
std::string size_text(std::uint64_t bytes);

} // namespace troupe
