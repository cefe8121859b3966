#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Readable numbers and tables.

namespace troupe::replay {

/// "105,710"
std::string human_count(std::uint64_t n);

/// "512 B", "6.45 GiB"
std::string human_bytes(std::uint64_t bytes);

/// "840 ns", "120 µs", "1.24 ms", "3.1 s", "2 min 05 s"
std::string human_time(duration d);

/// "36.6 %"; `share` is 0 … 1.
std::string human_percent(double share);

/// The share of a whole, 0 … 1; 0 if the whole is 0.
double share(std::uint64_t part, std::uint64_t whole) noexcept;

/// The number, or 0 if it is not finite: JSON and durations have no infinity and no NaN.
double finite(double x) noexcept;

duration from_seconds(double x) noexcept;

/// Bytes over a time in units of 10^9 bytes per second; 0 where no time has passed.
double gigabytes_per_second(std::uint64_t bytes, duration d) noexcept;

/// The columns of a UTF-8 text on the screen, for text without wide or combining characters.
std::size_t display_width(std::string_view text) noexcept;

/// The text, cut after so many columns.
std::string_view fitting(std::string_view text, std::size_t columns) noexcept;

/// Rows of cells, aligned by column: the first column to the left, the others to the right.
class text_table {
public:
  explicit text_table(std::vector<std::string> header);

  /// Adds a row; missing cells are empty, cells beyond the header are omitted.
  void row(std::vector<std::string> cells);

  /// The table, every line ending with a newline and starting with `indent` spaces.
  std::string str(std::size_t indent = 2) const;

private:
  std::vector<std::vector<std::string>> rows_;
};

} // namespace troupe::replay
