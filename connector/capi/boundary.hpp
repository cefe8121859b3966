#pragma once

#include "base/error.hpp"
#include "connector/capi/troupe.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

/// The boundary of the C interface: structs of other sizes, errors, exceptions, handles of another process, and handles
/// used by two threads.
namespace troupe::capi {

/// Fills the caller's struct, if there is one, and returns the code.
std::int32_t report(const error& what, troupe_error* to) noexcept;

/// Runs the body of a function; `f` returns a `result<void>`. Exceptions become errors.
template <class F>
std::int32_t guarded(troupe_error* to, F f) noexcept {
  try {
    const result<void> out = f();
    return out ? static_cast<std::int32_t>(TROUPE_OK) : report(out.error(), to);
  } catch (const std::exception& e) {
    return report({errc::internal, e.what()}, to);
  } catch (...) {
    return report({errc::internal, "a value that is not an exception was thrown"}, to);
  }
}

/// The largest size of a caller's struct. Sizes of all versions are multiples of 8, so that none ends inside a pointer.
inline constexpr std::uint32_t struct_bytes_max = 65536;

/// Reads the struct in this library's version: a shorter one is extended with zeroes. `name` is for errors.
template <class T>
result<T> read(const T* from, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0 && offsetof(T, size) == 0);
  const auto fault = [&](errc code, const std::string& what) { return fail(code, std::string(name) + what); };
  if (from == nullptr)
    return fault(errc::invalid_argument, " is NULL");
  const auto* bytes = reinterpret_cast<const char*>(from);
  std::uint32_t size = 0;
  std::memcpy(&size, bytes, sizeof size);
  if (size < 8 || size % 8 != 0 || size > struct_bytes_max)
    return fault(errc::invalid_argument, ".size is " + std::to_string(size) + "; it must be sizeof of the struct");
  T out{};
  std::memcpy(&out, bytes, std::min<std::size_t>(size, sizeof(T)));
  for (std::size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      return fault(errc::unsupported,
                   " sets a member that this library does not know; the library has interface version " +
                       std::to_string(TROUPE_INTERFACE_VERSION));
  out.size = static_cast<std::uint32_t>(sizeof(T));
  return out;
}

/// Whether `write` accepts it.
template <class T>
result<void> check_room(const T* to, std::string_view name) {
  if (to == nullptr)
    return fail(errc::invalid_argument, std::string(name) + " is NULL");
  if (to->size < 8 || to->size % 8 != 0 || to->size > struct_bytes_max)
    return fail(errc::invalid_argument,
                std::string(name) + ".size is " + std::to_string(to->size) + "; it must be sizeof of the struct");
  return {};
}

/// Writes at most the bytes of the caller's struct, and keeps its `size`.
template <class T>
void write(T from, T* to) noexcept {
  const auto size = to->size;
  from.size = size;
  std::memcpy(to, &from, std::min<std::size_t>(size, sizeof(T)));
}

/// The number of forks between the first connection and this process. `watch_forks` starts the count.
std::uint64_t fork_generation() noexcept;
void watch_forks();

/// The base of every handle.
class handle {
public:
  handle() : generation_(fork_generation()) {}
  handle(const handle&) = delete;
  handle& operator=(const handle&) = delete;
  ~handle() = default;

  bool is_of_this_process() const noexcept { return generation_ == fork_generation(); }

  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  void close() noexcept { closed_.store(true, std::memory_order_release); }

  /// Whether it may be used. Errors: unsupported, shutting_down.
  result<void> check() const;

  /// Marks a handle for one thread at a time as used.
  class use {
  public:
    explicit use(handle& x) noexcept : x_(x), alone_(!x.used_.test_and_set(std::memory_order_acquire)) {}
    use(const use&) = delete;
    use& operator=(const use&) = delete;
    ~use() {
      if (alone_)
        x_.used_.clear(std::memory_order_release);
    }
    bool alone() const noexcept { return alone_; }

  private:
    handle& x_;
    bool alone_;
  };

private:
  std::uint64_t generation_;
  std::atomic<bool> closed_{false};
  std::atomic_flag used_ = ATOMIC_FLAG_INIT;
};

/// `guarded` for a function of a handle for one thread at a time: busy where two use it.
template <class Handle, class F>
std::int32_t guarded_use(Handle* x, troupe_error* to, F f) noexcept {
  return guarded(to, [&]() -> result<void> {
    if (x == nullptr)
      return fail(errc::invalid_argument, "the handle is NULL");
    if (auto sound = x->check(); !sound)
      return sound;
    const handle::use now(*x);
    if (!now.alone())
      return fail(errc::busy, "another thread is inside a function of this handle, which is for one at a time");
    return f(*x);
  });
}

/// Destroys the result of `*_create`. In a child process the object stays, because its threads do not exist there.
template <class Handle>
void destroy(Handle* x) noexcept {
  if (x == nullptr || !x->is_of_this_process())
    return;
  try {
    delete x;
  } catch (...) { // NOLINT(bugprone-empty-catch): no error can be returned
  }
}

} // namespace troupe::capi
