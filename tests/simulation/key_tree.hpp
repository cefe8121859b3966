#pragma once

#include "base/digest.hpp"

#include <cstdint>
#include <span>

namespace troupe::simulation {

/// The key behind `parent` in the tree that clients walk, on one of its branches.
inline key_digest child_of(const key_digest& parent, std::uint64_t branch) {
  return chain_key(parent, std::as_bytes(std::span(&branch, 1)));
}

} // namespace troupe::simulation
