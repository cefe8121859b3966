#pragma once

#include "base/clock.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Parsing and formatting of sizes and times as people write them: a decimal number, a unit, at most one blank between
/// them.

namespace troupe::config {

/// Reads "4 MiB" or "1.5 GB"; units: B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB (powers of 1000). None if
/// the text is not a size, is not a whole number of bytes, or does not fit 64 bits.
std::optional<std::uint64_t> parse_size(std::string_view text) noexcept;

/// The probable meaning of a text that `parse_size` rejects, for a message: `"1 GiB" or "1 GB"` for "1G" and "1g", `"64
/// GiB"` for "64Gi". Empty if it is not a number with the beginning of a unit.
std::string suggest_size(std::string_view text);

/// Reads "30 s" or "0.5 ms"; units: ns, us, ms, s, min, h. None if the text is not a time, is not a whole number of
/// nanoseconds, or does not fit `duration`.
std::optional<duration> parse_time(std::string_view text) noexcept;

/// The size in the largest binary unit that gives a whole number: "4 MiB", "1000 B". `parse_size` reads it back
/// exactly.
std::string format_size(std::uint64_t bytes);

/// The time in the largest unit that gives a whole number: "90 s", "2 min". Not for negative times.
std::string format_time(duration x);

} // namespace troupe::config
