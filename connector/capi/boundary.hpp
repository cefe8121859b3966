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

/// What every function of the C interface does at its edges: structs of other sizes, errors, exceptions, handles that
/// belong to another process or are used by two threads.
namespace troupe::capi {

/// Fills what the caller gave, if anything, and returns the code.
std::int32_t report(const error& what, troupe_error* to) noexcept;

/// Runs what a function does; `f` returns a `result<void>`. Nothing it throws comes out.
template <class F>
std::int32_t guarded(troupe_error* to, F f) noexcept {
  try {
    const result<void> out = f();
    return out ? static_cast<std::int32_t>(TROUPE_OK) : report(out.error(), to);
  } catch (const std::exception& e) {
    return report({errc::internal, e.what()}, to);
  } catch (...) {
    return report({errc::internal, "something was thrown that is no exception"}, to);
  }
}

/// Sizes that a struct of a caller may have: those of all versions are multiples of 8, so that none ends inside a
/// pointer.
inline constexpr std::uint32_t struct_bytes_max = 65536;

/// The struct as this library knows it: zeroes behind the end of a shorter one. `name` is for errors.
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
    return fault(errc::invalid_argument, ".size is " + std::to_string(size) + ", and should be sizeof of the struct");
  T out{};
  std::memcpy(&out, bytes, std::min<std::size_t>(size, sizeof(T)));
  for (std::size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      return fault(errc::unsupported, " sets a member that this library does not know: it is of interface version " +
                                          std::to_string(TROUPE_INTERFACE_VERSION));
  out.size = static_cast<std::uint32_t>(sizeof(T));
  return out;
}

/// Whether `write` can take it.
template <class T>
result<void> check_room(const T* to, std::string_view name) {
  if (to == nullptr)
    return fail(errc::invalid_argument, std::string(name) + " is NULL");
  if (to->size < 8 || to->size % 8 != 0 || to->size > struct_bytes_max)
    return fail(errc::invalid_argument,
                std::string(name) + ".size is " + std::to_string(to->size) + ", and should be sizeof of the struct");
  return {};
}

/// Writes no more than the caller has room for, and leaves its `size` as it is.
template <class T>
void write(T from, T* to) noexcept {
  const auto size = to->size;
  from.size = size;
  std::memcpy(to, &from, std::min<std::size_t>(size, sizeof(T)));
}

/// How often this process is the child of a fork, as far as anybody looks: counted from the first connection on.
std::uint64_t fork_generation() noexcept;
void watch_forks();

/// What every handle begins with.
class handle {
public:
  handle() : generation_(fork_generation()) {}
  handle(const handle&) = delete;
  handle& operator=(const handle&) = delete;
  ~handle() = default;

  bool is_of_this_process() const noexcept { return generation_ == fork_generation(); }

  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  void close() noexcept { closed_.store(true, std::memory_order_release); }

  /// Whether it may be used: unsupported, shutting_down.
  result<void> check() const;

  /// For handles of one thread at a time.
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

/// `guarded` for a function of a handle that one thread uses at a time: busy where two do.
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

/// Destroys what `*_create` made; in a child of its process it stays, because what would have to be waited for is not
/// there.
template <class Handle>
void destroy(Handle* x) noexcept {
  if (x == nullptr || !x->is_of_this_process())
    return;
  try {
    delete x;
  } catch (...) { // NOLINT(bugprone-empty-catch): there is nobody to tell
  }
}

} // namespace troupe::capi
