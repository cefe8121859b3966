#pragma once

#include "config/node_config.hpp"

#include <vector>

namespace troupe::config {

/// Checks rules that relate keys to one another. Rules about a key with an error are skipped, as its value is not the
/// written one.
void check_rules(const node_config& config, purpose what_for, std::vector<problem>& problems);

} // namespace troupe::config
