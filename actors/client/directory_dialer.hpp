#pragma once

#include "actors/client/link/node_address.hpp"
#include "actors/support/directory_opener.hpp"
#include "base/clock.hpp"
#include "messages/messages.hpp"

#include <caf/io/middleman_actor.hpp>

#include <chrono>

/// How a process finds the handshake directory of a node: as `handshake::client` needs it, and for a single request.
/// Needs no attachment.

namespace troupe {

/// The limit for connecting, and for the answer of the node.
inline constexpr duration directory_patience = std::chrono::seconds(5);

/// The directory of the node at `where`. `dialer`: opens the connection, as in `link_options`; null: the middleman of
/// CAF, which only supports TCP without TLS. The result is unreachable or timeout where there is no node, and
/// unsupported where the listener has no directory.
directory_opener directory_of(caf::actor_system& system, caf::io::middleman_actor dialer, node_address where,
                              duration patience = directory_patience);

/// The directory of a node of this process.
directory_opener directory_of(caf::actor_system& system, reception_actor node);

/// Opens the directory and waits for the answer: not for actors.
result<handshake_proxy_actor> open_directory(const directory_opener& open);

} // namespace troupe
