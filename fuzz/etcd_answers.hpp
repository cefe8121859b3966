#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as each of etcd's answers, as a line of a watch, and as an entry of the list of nodes; then has the
/// rules of the list hear it in answer to all that they ask. Ends the process where something is accepted that makes no
/// sense. Returns how many readings accepted it.
int read_etcd_answers(std::string_view text);

} // namespace troupe::fuzz
