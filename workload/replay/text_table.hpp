#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Numbers and tables as people like to read them.

namespace troupe::replay {

/// "105,710"
std::string human_count(std::uint64_t n);

/// "512 B", "6.45 GiB"
std::string human_bytes(std::uint64_t bytes);

/// "840 ns", "120 µs", "1.24 ms", "3.1 s", "2 min 05 s"
std::string human_time(duration d);

/// "36.6 %"; `share` is 0 … 1.
std::string human_percent(double share);

/// The part of a whole, 0 … 1; 0 of nothing.
double share(std::uint64_t part, std::uint64_t whole) noexcept;

/// Or 0: JSON has no infinity and no NaN, and a duration neither.
double finite(double x) noexcept;

duration from_seconds(double x) noexcept;

/// Bytes over a time in units of 10^9 bytes per second; 0 where no time has passed.
double gigabytes_per_second(std::uint64_t bytes, duration d) noexcept;

/// Columns on the screen that a UTF-8 text takes, for text without wide or combining characters.
std::size_t display_width(std::string_view text) noexcept;

/// The text, cut behind as many columns as there are.
std::string_view fitting(std::string_view text, std::size_t columns) noexcept;

/// Rows of cells, aligned by column: the first column to the left, the others to the right.
class text_table {
public:
  explicit text_table(std::vector<std::string> header);

  /// Adds a row; missing cells are empty, cells beyond the header are left out.
  void row(std::vector<std::string> cells);

  /// The table, every line ending with a newline and starting with `indent` spaces.
  std::string str(std::size_t indent = 2) const;

private:
  std::vector<std::vector<std::string>> rows_;
};

} // namespace troupe::replay
