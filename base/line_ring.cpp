#include "base/line_ring.hpp"

namespace troupe {

void line_ring::add(std::string_view line) {
  line = line.substr(0, most_bytes_);
  bytes_ += line.size();
  lines_.emplace_back(line);
  while (lines_.size() > most_lines_ || bytes_ > most_bytes_) {
    bytes_ -= lines_.front().size();
    lines_.pop_front();
  }
}

} // namespace troupe
