#pragma once

#include "base/error.hpp"
#include "cli/program.hpp"
#include "cli/scratch.hpp"
#include "config/node_config.hpp"
#include "workload/replay/trace.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// The config of the node that a replay runs for itself.
struct own_node {
  config::node_config config;
  /// Where the node writes, unless the user chose a place.
  scratch_directory scratch;
};

/// Puts the config together: the file if there is one, else one namespace with room for everything in the trace; then
/// `--page-bytes`, `--ranks` and `--capacity-pages`; then `--set`. Prints what is wrong and returns none.
std::optional<own_node> make_own_node(const replay_options& options);

/// Whether this machine has memory for so much KV cache: half of it at most. The error says who wants it, and what to
/// choose smaller.
result<void> check_memory(std::uint64_t bytes, std::string_view who, std::string_view options);

/// Gives a config that was made for any trace the slots that this one needs, where neither file nor option say.
void give_room(const replay_options& options, const replay::trace& trace, config::node_config& config);

} // namespace troupe::cli
