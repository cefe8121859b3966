#pragma once

#include "cli/program.hpp"

#include <variant>

namespace troupe::cli {

/// The end of a run without a command: help or an error has been printed.
struct nothing_to_do {
  int exit_code = exit_ok;
};

using command =
    std::variant<nothing_to_do, serve_options, init_options, replay_options, check_config_options, make_trace_options,
                 status_options, top_options, list_namespaces_options, remove_namespace_options, check_slabs_options,
                 whatif_options, cluster_status_options, explain_options, help_options>;

/// Parses the command line. Prints help, the version and errors; an error about an unknown command or option names the
/// word, with the most similar known one.
command parse_command_line(int argc, const char* const* argv);

} // namespace troupe::cli
