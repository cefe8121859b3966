#pragma once

#include "messages/messages.hpp"

#include <functional>

namespace troupe {

/// Opens a door to a directory of handshakes, anew each time: the one before may have ended with its node, or with the
/// connection to it. `then` is called once, from any thread, possibly before the opener returns. May be called from any
/// thread, and waits for nothing.
using directory_opener = std::function<void(std::function<void(result<handshake_door_actor>)> then)>;

/// For a door that stays.
inline directory_opener open_door(handshake_door_actor door) {
  return [door = std::move(door)](const std::function<void(result<handshake_door_actor>)>& then) { then(door); };
}

} // namespace troupe
