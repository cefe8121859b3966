#pragma once

#include "config/node_config.hpp"
#include "io/engine/engine.hpp"

namespace troupe {

/// The options of the I/O engine for slab files, from the config.
io::engine_options engine_options_of(const config::node_config& options);

} // namespace troupe
