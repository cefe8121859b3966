#pragma once

#include "config/document.hpp"
#include "config/node_config.hpp"

#include <vector>

namespace troupe::config {

/// Reads every value of a document, which is an object, into a config. Wrong, missing and unknown values are reported
/// and keep their default.
node_config read_config(const element& root, std::vector<problem>& problems);

} // namespace troupe::config
