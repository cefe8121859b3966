#pragma once

#include "config/node_config.hpp"

#include <optional>
#include <vector>

namespace troupe::config {

/// Checks rules that relate keys to one another. Rules about a key with an error are skipped, as its value is not the
/// written one.
void check_rules(const node_config& config, purpose what_for, std::vector<problem>& problems);

/// A notice for the operator: that the config uses what is experimental.
std::optional<problem> notice_of_experimental(const node_config& config);

} // namespace troupe::config
