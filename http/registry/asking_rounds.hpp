#pragma once

#include "http/server/request_round.hpp"

namespace caf {
class actor_system;
}

namespace troupe::http {

/// Lets the io threads of a server answer short questions to actors of this system in rounds: see `asking_round`. The
/// system must outlive the server.
request_round_maker asking_rounds(caf::actor_system& system);

} // namespace troupe::http
