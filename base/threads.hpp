#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <exception>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

/// What a process does that may make no more threads, or open no more files: both are limited, by the user, the service
/// or the container, and the limit may be reached by others.

namespace troupe {

/// A thread that was refused, with the way out. `what`: "the thread of an io engine".
error no_thread(std::string_view what, int errno_value);

/// Starts a thread. Errors: `io_error`, where no more threads may be made. `what`: as for `no_thread`.
template <class F>
result<std::thread> start_thread(std::string_view what, F f) {
  try {
    return std::thread(std::move(f));
  } catch (const std::system_error& e) {
    return tl::unexpected<error>(no_thread(what, e.code().value()));
  }
}

/// Whether so many more threads may be made now, found out by making them: for libraries that end or hang where they
/// get too few. They have ended when this returns, also by the count of the kernel. What others take the next moment is
/// not known. `what` needs them, such as "the actor system". Errors: `io_error`.
result<void> check_threads(std::size_t count, std::string_view what);

/// Likewise for so many more open files.
result<void> check_descriptors(std::size_t count, std::string_view what);

/// What to do about an error of the system that somebody else has made text of, with a blank before it: where threads,
/// open files, room on the disk or memory have run out. Empty for all others.
std::string_view way_out_of(std::string_view text);

/// An exception of the standard library or of Asio, as an error with the way out where threads, open files or memory
/// have run out. `doing`: "cannot start the node".
error error_of(const std::exception& e, std::string_view doing);

} // namespace troupe
