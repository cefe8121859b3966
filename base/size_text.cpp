#include "base/size_text.hpp"

#include <array>

namespace troupe {

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (unit + 1 < units.size() && (bytes >> (10 * unit)) >= 1024)
    ++unit;
  const auto shift = 10 * unit;
  auto whole = bytes >> shift;
  std::uint64_t hundredths = 0;
  if (unit > 0) {
    // The ten bits behind the point are enough for two digits.
    const auto rest = (bytes >> (shift - 10)) & 1023U;
    hundredths = (rest * 100 + 512) / 1024;
    if (hundredths == 100) {
      hundredths = 0;
      ++whole;
    }
    if (whole == 1024 && unit + 1 < units.size()) {
      whole = 1;
      ++unit;
    }
  }
  auto out = std::to_string(whole);
  if (hundredths % 10 != 0)
    out += (hundredths < 10 ? ".0" : ".") + std::to_string(hundredths);
  else if (hundredths != 0)
    out += "." + std::to_string(hundredths / 10);
  return out + " " + units[unit];
}

} // namespace troupe
