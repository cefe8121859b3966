#include "base/utf8.hpp"

namespace troupe {

std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const auto first = byte(0);
  const auto second = byte(1);
  if (first >= 0xc2 && first <= 0xdf)
    return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    // The encoding must be the shortest, and not a surrogate.
    const auto fits = first == 0xe0 ? second >= 0xa0 : first != 0xed || second < 0xa0;
    return continues(1) && continues(2) && fits ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const auto fits = first == 0xf0 ? second >= 0x90 : first != 0xf4 || second < 0x90;
    return continues(1) && continues(2) && continues(3) && fits ? 4 : 0;
  }
  return 0;
}

} // namespace troupe
