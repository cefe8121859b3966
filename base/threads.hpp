#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <exception>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

/// Checks and errors for the limits on threads and open files: the user, the service or the container sets them, and
/// other processes may use them up.

namespace troupe {

/// The error for a thread that was refused, with the way out. `what`: "the thread of an io engine".
error no_thread(std::string_view what, int errno_value);

/// Starts a thread. Error: `io_error` where no more threads may be started. `what`: as for `no_thread`.
template <class F>
result<std::thread> start_thread(std::string_view what, F f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& e) {
    return tl::unexpected<error>(no_thread(what, e.code().value()));
  }
}

/// Checks whether so many more threads may be started now, by starting them: for libraries that end or hang with too
/// few. They have ended when this returns, also in the kernel's count. Other processes may use up the limit at any
/// time. `what` needs them, such as "the actor system". Error: `io_error`.
result<void> check_threads(std::size_t count, std::string_view what);

/// The same check for so many more open files.
result<void> check_descriptors(std::size_t count, std::string_view what);

/// The hint for a system error that is available only as text, with a leading blank: where threads, open files, disk
/// space or memory have run out. Empty for all others.
std::string_view way_out_of(std::string_view text);

/// Converts an exception of the standard library or of Asio to an error, with the way out where threads, open files or
/// memory have run out. `doing`: "cannot start the node".
error error_of(const std::exception& e, std::string_view doing);

} // namespace troupe
