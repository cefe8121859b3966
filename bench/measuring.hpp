#pragma once

#include "base/error.hpp"

#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <string>
#include <sys/resource.h>
#include <utility>

namespace troupe::bench {

/// Prints the reason after the program's name, and ends the program.
[[noreturn]] inline void die(const std::string& text) {
  std::cerr << ::program_invocation_short_name << ": " << text << '\n';
  std::exit(1);
}

template <class T>
T value_or_die(result<T> outcome) {
  if (!outcome)
    die(to_string(outcome.error()));
  return std::move(*outcome);
}

/// CPU time of this process so far, user and kernel.
inline double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

} // namespace troupe::bench
