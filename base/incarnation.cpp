#include "base/incarnation.hpp"

#include <random>

namespace troupe {

incarnation_number fresh_incarnation() {
  std::random_device entropy;
  for (;;)
    if (const auto made = (std::uint64_t{entropy()} << 32U) | entropy(); made != 0)
      return made;
}

} // namespace troupe
