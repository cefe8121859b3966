#pragma once

#include "config/node_config.hpp"
#include "handshake/directory_state.hpp"

namespace troupe {

/// The limits of the directory of handshakes, from the config.
handshake::directory_options options_of_directory(const config::handshake_config& x);

} // namespace troupe
