#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

/// A text with one to four wounds: a byte that is another one, some that are missing, some that are new, or an end that
/// is not its own.
struct text_damage {
  /// One of these characters is inserted; any byte if empty.
  std::string_view inserted{};
  /// A text may get the ends of these; it is cut off if there are none.
  const std::vector<std::string>* ends = nullptr;

  template <class Random>
  std::string operator()(std::string text, Random& random) const {
    for (auto n = 1 + random() % 4; n > 0 && !text.empty(); --n) {
      const auto at = random() % text.size();
      switch (random() % 4) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, 1 + random() % 8,
                    inserted.empty() ? static_cast<char>(random()) : inserted[random() % inserted.size()]);
        break;
      default:
        text.resize(at + 1);
        if (ends != nullptr) {
          const auto& other = (*ends)[random() % ends->size()];
          text.replace(at, std::string::npos, other.substr(std::min<std::size_t>(at, other.size())));
        }
      }
    }
    return text;
  }
};

} // namespace troupe::test
