#pragma once

#include "base/unique_descriptor.hpp"

#include <filesystem>
#include <random>
#include <vector>

namespace troupe::replay {

/// Flips bytes in slab files that a node has open, without its knowledge. `troupe replay --inject-faults` shows users
/// that a damaged page costs an engine only work. It uses files only, not the node.
class slab_damage {
public:
  explicit slab_damage(const std::vector<std::filesystem::path>& slabs);

  /// Changes one byte of the written parts. Returns false if nothing is written yet.
  bool strike(std::mt19937_64& random);

private:
  std::vector<unique_descriptor> files_;
};

} // namespace troupe::replay
