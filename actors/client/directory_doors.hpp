#pragma once

#include "actors/client/link/node_address.hpp"
#include "actors/support/directory_opener.hpp"
#include "base/clock.hpp"
#include "messages/messages.hpp"

#include <caf/io/middleman_actor.hpp>

#include <chrono>

/// How a process finds the directory of handshakes of a node: as `handshake::client` wants it, and for one who asks
/// once. Needs no attachment.

namespace troupe {

/// How long connecting, and the answer of the node, may take each.
inline constexpr duration directory_patience = std::chrono::seconds(5);

/// The directory of the node at `where`. `entrance`: who connects, as in `link_options`; null: the middleman of CAF,
/// which knows TCP without TLS only. The door comes with unreachable or timeout where there is no node, unsupported
/// where what is there has no directory.
directory_opener directory_of(caf::actor_system& system, caf::io::middleman_actor entrance, node_address where,
                              duration patience = directory_patience);

/// That of a node of this process.
directory_opener directory_of(caf::actor_system& system, reception_actor node);

/// Opens a door, and waits for it: not for actors.
result<handshake_door_actor> open_directory(const directory_opener& open);

} // namespace troupe
