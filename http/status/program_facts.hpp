#pragma once

#include <string>

namespace troupe::http {

/// The program that a node runs in.
struct program_facts {
  std::string version;
  /// Of its sources.
  std::string commit = {};
};

} // namespace troupe::http
