#pragma once

#include "base/identifiers.hpp"

#include <string>

namespace troupe::simulation {

/// The name of a slot in reports of errors.
inline std::string text_of(slot_ref where) {
  return "slot " + std::to_string(where.slot) + " generation " + std::to_string(where.generation);
}

inline std::string text_of(rank_number rank, slot_ref where) {
  return "rank " + std::to_string(rank) + " " + text_of(where);
}

} // namespace troupe::simulation
