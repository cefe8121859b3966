#pragma once

#include "config/node_config.hpp"

#include <vector>

namespace troupe::config {

/// Checks what ties keys to one another. Rules about a key that has a problem already are passed over, as its value
/// is not what was written.
void check_rules(const node_config& config, purpose what_for, std::vector<problem>& problems);

} // namespace troupe::config
