#pragma once

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

/// Names of threads; and checks and errors for the limits on threads and open files: the user, the service or the
/// container sets them, and other processes may use them up.

namespace troupe {

/// The error for a thread that was refused, with the way out. `what`: "the thread of an io engine".
error no_thread(std::string_view what, int errno_value);

/// The name of a thread, as `ps -L`, `top -H` and debuggers show it: at most 15 characters. docs/architecture.md lists
/// all names.
class thread_name {
public:
  /// The length of names that the kernel stores, with the terminating zero.
  static constexpr std::size_t limit = 16;

  template <std::size_t Size>
  consteval explicit thread_name(const char (&text)[Size]) noexcept {
    static_assert(Size > 1 && Size <= limit);
    std::copy_n(text, Size, text_.begin());
  }

  /// This name with `more` behind it, such as a number; cut off at the limit.
  thread_name with(std::string_view more) const noexcept {
    auto out = *this;
    const auto length = std::string_view(text()).size();
    std::copy_n(more.begin(), std::min(more.size(), limit - 1 - length), out.text_.begin() + length);
    return out;
  }

  constexpr const char* text() const noexcept { return text_.data(); }

private:
  std::array<char, limit> text_{};
};

/// Names the calling thread.
void name_this_thread(thread_name name) noexcept;

/// Returns a function for a new thread that names the thread and calls `f` with the arguments of the thread, such as
/// the stop token of a `std::jthread`.
template <class F>
auto named(thread_name name, F f) {
  return [name, f = std::move(f)](auto... args) mutable -> std::invoke_result_t<F&, decltype(args)...> {
    name_this_thread(name);
    return f(std::move(args)...);
  };
}

/// Starts a thread. Error: `io_error` where no more threads may be started. `what`: as for `no_thread`.
template <class F>
result<std::thread> start_thread(thread_name name, std::string_view what, F f) {
  try {
    return std::thread(named(name, std::move(f)));
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
