#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// Where a client finds a node.
struct node_address {
  /// A host, or the path of a Unix socket or of a node's `data_dir`: a path contains a slash, and the port is 0.
  std::string host;
  std::uint16_t port = 0;

  bool is_path() const { return port == 0; }
};

/// Reads HOST:PORT, [HOST]:PORT, or a path. A text without a slash and without a number after a colon is a path if
/// there is such a file. Errors: invalid_argument.
result<node_address> parse_node_address(const std::string& text);

/// The text form, as `parse_node_address` reads it.
std::string to_string(const node_address& x);

} // namespace troupe
