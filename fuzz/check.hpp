#pragma once

#include <cstdio>
#include <cstdlib>

namespace troupe::fuzz {

/// Ends the process unless `holds`, which a fuzzer treats as a find and a test as a failure.
inline void demand(bool holds, const char* what) {
  if (holds)
    return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

} // namespace troupe::fuzz
