#pragma once

#include <caf/actor_system.hpp>

#include <string>
#include <vector>

namespace troupe {

/// All kinds of messages that a client may send to a node: those in the interfaces of the handles that a client gets,
/// which are reception, client_shard, client_worker, client_cluster and handshake_proxy. Each is the first bytes of
/// such a message, as CAF serializes it, up to the end of the names of its types; sorted, without repetitions.
std::vector<std::string> kinds_of_client_messages(caf::actor_system& system);

} // namespace troupe
