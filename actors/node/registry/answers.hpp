#pragma once

#include "base/error.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>

namespace troupe {

/// The answer for one key of a request that asks for slots.
inline location answered(errc code, slot_ref where = {}) {
  return {where, static_cast<std::uint32_t>(code)};
}

/// The answer for one item of all other requests.
inline std::uint8_t byte_of(errc code) {
  return static_cast<std::uint8_t>(code);
}

} // namespace troupe
