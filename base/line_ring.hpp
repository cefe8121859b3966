#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The newest lines of an endless text, bounded in lines and bytes. Not thread-safe.
class line_ring {
public:
  line_ring(std::size_t lines, std::size_t bytes) noexcept : most_lines_(lines), most_bytes_(bytes) {}

  /// Appends a line; one that is longer than the bound is cut.
  void add(std::string_view line);

  /// The lines, oldest first.
  std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

  std::size_t bytes() const noexcept { return bytes_; }

private:
  std::size_t most_lines_;
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::deque<std::string> lines_;
};

} // namespace troupe
