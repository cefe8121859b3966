#pragma once

#include <string_view>

namespace troupe::fuzz {

/// Reads the text as each of etcd's answers, as a line of a watch, and as an entry of the list of nodes; then passes it
/// to the rules of the list as the answer to all of their requests. Ends the process where something invalid is
/// accepted. Returns how many readings accepted it.
int read_etcd_answers(std::string_view text);

} // namespace troupe::fuzz
