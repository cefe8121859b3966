#pragma once

#include "base/clock.hpp"
#include "cli/program.hpp"
#include "http/client/connection.hpp"

#include <string>
#include <string_view>

namespace troupe::cli {

/// What became of one request to a node's HTTP server. `why` is for people, `code` tells what the program ends with.
struct node_answer {
  int code = exit_ok;
  std::string why = {};
  client_detail::answer reply = {};
  /// Who was asked, also where nobody was named.
  std::string url = {};
};

/// Asks, and waits for the answer for as long as `patience`. What is no success is `exit_failed`, with the status in
/// `reply`, which is 0 where nobody has answered; a wrong URL, token file or authority is `exit_usage`.
node_answer ask_node(const node_access& node, std::string_view method, const std::string& path, duration patience);

/// "HOST:PORT"; the path of a Unix socket or of a node's `data_dir`; or a URL as it is. A path is what begins with / or
/// a dot, and the name of a directory or socket that is there.
std::string url_of(std::string_view address);

} // namespace troupe::cli
