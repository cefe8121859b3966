#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// Where a client finds a node.
struct node_address {
  /// A host, or the path of a Unix socket or of a node's `data_dir`: then there is a slash in it, and the port is 0.
  std::string host;
  std::uint16_t port = 0;

  bool is_path() const { return port == 0; }
};

/// Reads HOST:PORT, [HOST]:PORT, or a path. What is neither a number behind a colon nor has a slash is a path if there
/// is such a file. Errors: invalid_argument.
result<node_address> parse_node_address(const std::string& text);

/// As people write it.
std::string to_string(const node_address& x);

} // namespace troupe
