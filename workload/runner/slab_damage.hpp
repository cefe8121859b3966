#pragma once

#include "base/unique_descriptor.hpp"

#include <filesystem>
#include <random>
#include <vector>

namespace troupe::replay {

/// Flips bytes in slab files behind the back of the node that has them open. `troupe replay --inject-faults` promises
/// it to users: a page that is damaged costs an engine work and nothing else. Knows files only, no node.
class slab_damage {
public:
  explicit slab_damage(const std::vector<std::filesystem::path>& slabs);

  /// One byte somewhere in what has been written. False if there is nothing yet.
  bool strike(std::mt19937_64& random);

private:
  std::vector<unique_descriptor> files_;
};

} // namespace troupe::replay
