#include "workload/runner/machine.hpp"

#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace troupe::replay {

result<void> check_memory(std::uint64_t bytes, std::string_view who, std::string_view options) {
  const auto memory =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if (bytes > memory / 2)
    return fail(errc::limit_exceeded, std::string(who) + " would need " + std::to_string(bytes >> 20U) +
                                          " MiB of KV cache, and this machine has " + std::to_string(memory >> 20U) +
                                          " MiB: choose a smaller " + std::string(options));
  return {};
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& x) {
    return static_cast<double>(x.tv_sec) + static_cast<double>(x.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

} // namespace troupe::replay
