#include "base/threads.hpp"

#include "base/unique_descriptor.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <string>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace troupe {

namespace {

constexpr std::string_view more_threads =
    " (no more threads may be made: raise the limit, which is ulimit -u, TasksMax of the service or pids.max of the "
    "container)";
constexpr std::string_view more_files =
    " (raise the limit of open files, which is ulimit -n or LimitNOFILE of the service)";
constexpr std::string_view more_files_of_host = " (the host has as many open files as it may: raise fs.file-max)";
constexpr std::string_view more_room = " (make room on that file system, or give it more inodes: df, df -i)";
constexpr std::string_view more_memory = " (raise the memory limit, which is ulimit -v or that "
                                         "of the container)";

/// The interval of checks for an ending thread, which takes microseconds, and the longest wait for it.
constexpr std::chrono::microseconds look_interval{200};
constexpr std::chrono::seconds look_limit{1};

/// Blocks all signals, for threads that must not handle them.
class signals_blocked {
public:
  signals_blocked() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  signals_blocked(const signals_blocked&) = delete;
  signals_blocked& operator=(const signals_blocked&) = delete;
  ~signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_{};
};

/// Threads that wait until they are released.
class waiting_threads {
public:
  /// Throws std::system_error.
  void add() {
    threads_.emplace_back(named(thread_name("troupe-check"), [this] {
      std::unique_lock guard(mutex_);
      numbers_.push_back(static_cast<pid_t>(::syscall(SYS_gettid)));
      changed_.wait(guard, [this] { return over_; });
    }));
  }

  /// A joined thread counts a moment longer, until the kernel has removed it from the process.
  ~waiting_threads() {
    {
      const std::lock_guard guard(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (auto& x : threads_)
      x.join();
    const auto until = std::chrono::steady_clock::now() + look_limit;
    for (const auto number : numbers_)
      while (::syscall(SYS_tgkill, ::getpid(), number, 0) == 0 && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(look_interval);
  }

  waiting_threads() = default;
  waiting_threads(const waiting_threads&) = delete;
  waiting_threads& operator=(const waiting_threads&) = delete;

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::vector<pid_t> numbers_;
  std::vector<std::thread> threads_;
};

/// The hint for an errno beyond its text.
std::string_view way_out(int code) {
  switch (code) {
  case EAGAIN:
    return more_threads;
  case ENOMEM:
    return more_memory;
  case EMFILE:
    return more_files;
  case ENFILE:
    return more_files_of_host;
  case ENOSPC:
    return more_room;
  default:
    return {};
  }
}

std::string count_text(std::size_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

} // namespace

void name_this_thread(thread_name name) noexcept {
  ::pthread_setname_np(::pthread_self(), name.text());
}

error no_thread(std::string_view what, int errno_value) {
  auto out = system_error(errno_value, "cannot start " + std::string(what));
  if (errno_value != EMFILE) // whose text has the hint
    out.text += way_out(errno_value);
  return out;
}

result<void> check_threads(std::size_t count, std::string_view what) {
  const signals_blocked others_get_them;
  waiting_threads made;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      made.add();
    } catch (const std::system_error& e) {
      auto out = system_error(e.code().value(), std::string(what) + " needs " +
                                                    count_text(count, "more thread", "more threads") + " and gets " +
                                                    std::to_string(i));
      out.text += way_out(e.code().value());
      return tl::unexpected<error>(std::move(out));
    }
  }
  return {};
}

result<void> check_descriptors(std::size_t count, std::string_view what) {
  std::vector<unique_descriptor> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.emplace_back(::epoll_create1(EPOLL_CLOEXEC));
    if (!made.back())
      return tl::unexpected<error>(system_error(errno, std::string(what) + " needs " +
                                                           count_text(count, "more open file", "more open files") +
                                                           " and gets " + std::to_string(i)));
  }
  return {};
}

std::string_view way_out_of(std::string_view text) {
  for (const auto code : {EAGAIN, ENOMEM, EMFILE, ENFILE, ENOSPC})
    if (text.find(std::generic_category().message(code)) != std::string_view::npos)
      return way_out(code);
  return {};
}

error error_of(const std::exception& e, std::string_view doing) {
  const std::string prefix = std::string(doing) + ": ";
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr)
    return {errc::io_error, prefix + "out of memory" + std::string(more_memory)};
  // Asio's exceptions are not std::system_error, but have the same text.
  const auto way = way_out_of(e.what());
  const bool is_of_system = dynamic_cast<const std::system_error*>(&e) != nullptr || !way.empty();
  return {is_of_system ? errc::io_error : errc::internal, prefix + e.what() + std::string(way)};
}

} // namespace troupe
