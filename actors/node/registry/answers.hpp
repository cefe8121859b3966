#pragma once

#include "base/error.hpp"
#include "messages/registry_messages.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// The answer for one key of a request that asks for slots.
inline location answered(errc code, slot_ref where = {}) {
  return {where, static_cast<std::uint32_t>(code)};
}

/// The answer for one item of all other requests.
inline std::uint8_t byte_of(errc code) {
  return static_cast<std::uint8_t>(code);
}

/// The refusal to remove a namespace that is in use.
inline error namespace_in_use(const std::string& name, std::uint64_t leases, std::uint64_t reservations) {
  return {errc::busy, "namespace '" + name + "' has " + std::to_string(leases) + " leases and " +
                          std::to_string(reservations) +
                          " reservations; wait until they end, or end them with --force (?force=true)"};
}

} // namespace troupe
