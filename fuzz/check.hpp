#pragma once

#include <cstdio>
#include <cstdlib>

namespace troupe::fuzz {

/// Ends the process unless it holds, which a fuzzer takes for a find and a test for a failure.
inline void demand(bool holds, const char* what) {
  if (holds)
    return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

} // namespace troupe::fuzz
