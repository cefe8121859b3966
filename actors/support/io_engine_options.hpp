#pragma once

#include "config/node_config.hpp"
#include "io/engine.hpp"

namespace troupe {

/// Of an engine that reads and writes slab files, as the config says.
io::engine_options engine_options_of(const config::node_config& options);

} // namespace troupe
