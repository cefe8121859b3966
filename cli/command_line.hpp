#pragma once

#include "cli/program.hpp"

#include <variant>

namespace troupe::cli {

/// There is nothing (more) to do: help or what is wrong has been printed.
struct nothing_to_do {
  int exit_code = exit_ok;
};

using command = std::variant<nothing_to_do, serve_options, init_options, replay_options, check_config_options,
                             make_trace_options, status_options, top_options, list_namespaces_options,
                             remove_namespace_options, check_slabs_options, whatif_options, cluster_status_options>;

/// What the command line asks for. Prints help and the version, and says what is wrong: a word that is no command or
/// option by its name, with the one that was probably meant.
command parse_command_line(int argc, const char* const* argv);

} // namespace troupe::cli
