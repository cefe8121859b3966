#pragma once

#include "base/clock.hpp"

#include <cstdint>
#include <map>

namespace troupe::simulation {

/// The processes of the clients, as the kernel of their host knows them: a killed one ends at once, or some time later,
/// when the kernel has released it; until then its devices may still be copying.
class process_table {
public:
  /// Numbers are not used again.
  std::int32_t begin() {
    gone_[++last_] = timestamp::max();
    return last_;
  }

  /// It ends then.
  void end(std::int32_t process, timestamp when) { gone_[process] = when; }

  bool gone(std::int32_t process, timestamp now) const {
    const auto found = gone_.find(process);
    return found == gone_.end() || found->second <= now;
  }

private:
  std::map<std::int32_t, timestamp> gone_;
  std::int32_t last_ = 1000;
};

} // namespace troupe::simulation
