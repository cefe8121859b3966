#pragma once

#include "config/document.hpp"
#include "config/node_config.hpp"

#include <vector>

namespace troupe::config {

/// Reads every value of a document, which is an object, into a config. What is wrong, missing or unknown is reported
/// and keeps its default.
node_config read_config(const element& root, std::vector<problem>& problems);

} // namespace troupe::config
