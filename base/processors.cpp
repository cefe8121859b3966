#include "base/processors.hpp"

#include "base/control_groups.hpp"

#include <algorithm>
#include <cmath>
#include <sched.h>
#include <thread>
#include <vector>

namespace troupe {

unsigned affinity_processors() {
  // The call refuses a set that is smaller than the kernel's own, whose size only it knows.
  constexpr std::size_t most = 1U << 16U;
  for (std::size_t processors = CPU_SETSIZE; processors <= most; processors *= 2) {
    std::vector<cpu_set_t> set(processors / CPU_SETSIZE);
    const auto bytes = set.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, set.data()) == 0)
      return static_cast<unsigned>(CPU_COUNT_S(bytes, set.data()));
  }
  return std::thread::hardware_concurrency();
}

unsigned usable_processors(unsigned affinity, std::optional<double> quota) noexcept {
  const auto allowed = std::max(affinity, 1U);
  // A quota beyond the affinity limits nothing, and may be beyond an unsigned number.
  if (!quota || *quota >= allowed)
    return allowed;
  return std::max(static_cast<unsigned>(std::ceil(*quota)), 1U);
}

unsigned usable_processors() {
  static const auto counted = usable_processors(affinity_processors(), processor_quota_of_groups());
  return counted;
}

} // namespace troupe
