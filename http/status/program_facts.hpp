#pragma once

#include <string>

namespace troupe::http {

/// Facts about the program of a node.
struct program_facts {
  std::string version;
  /// The commit of the sources.
  std::string commit = {};
};

} // namespace troupe::http
