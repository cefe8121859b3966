#pragma once

#include <cstdio>
#include <cstdlib>

namespace troupe::test {

/// Ends the program, and says what it cannot do and why (`errno`): for what a test stands on and does not check.
[[noreturn]] inline void cannot(const char* what) {
  std::fputs("a test cannot ", stderr);
  std::perror(what);
  std::abort();
}

} // namespace troupe::test
