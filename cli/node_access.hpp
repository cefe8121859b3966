#pragma once

#include "base/clock.hpp"
#include "cli/program.hpp"
#include "http_client/connection.hpp"

#include <string>
#include <string_view>

namespace troupe::cli {

/// The outcome of one request to a node's HTTP server. `why` is for people, `code` is the exit code of the program.
struct node_answer {
  int code = exit_ok;
  std::string why = {};
  client_detail::answer reply = {};
  /// The URL that was requested, including a default one.
  std::string url = {};
};

/// Sends a request, and waits for the answer for up to `patience`. An answer that is not a success is `exit_failed`,
/// with the status in `reply`, which is 0 if no answer came; a wrong URL, token file or authority is `exit_usage`.
node_answer ask_node(const node_access& node, std::string_view method, const std::string& path, duration patience);

/// Turns "HOST:PORT", or the path of a Unix socket or of a node's `data_dir`, into a URL; a URL stays as it is. A path
/// is a text that begins with / or a dot, or the name of an existing directory or socket.
std::string url_of(std::string_view address);

/// The text as one segment of a path, or as a value of a query: other than letters and digits are percent-encoded.
std::string url_escaped(std::string_view text);

} // namespace troupe::cli
