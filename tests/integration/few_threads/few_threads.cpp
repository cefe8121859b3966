#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>

/// A library for LD_PRELOAD that limits a process to TROUPE_THREADS_MAX threads beside its first, as RLIMIT_NPROC or
/// pids.max do, for any user.

namespace {

std::atomic<long> alive{0};

long most() {
  static const char* const text = std::getenv("TROUPE_THREADS_MAX");
  return text == nullptr ? 1'000'000 : std::strtol(text, nullptr, 10);
}

struct task {
  void* (*what)(void*);
  void* with;
};

/// Also where the thread ends by pthread_exit.
struct counted {
  counted() = default;
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  ~counted() { --alive; }
};

void* run(void* x) {
  const counted this_thread;
  const auto* const given = static_cast<task*>(x);
  const auto todo = *given;
  delete given;
  return todo.what(todo.with);
}

} // namespace

extern "C" int pthread_create(pthread_t* made, const pthread_attr_t* how, void* (*what)(void*), void* with) {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (++alive > most()) {
    --alive;
    return EAGAIN;
  }
  auto* const todo = new task{what, with};
  const int code = create(made, how, &run, todo);
  if (code != 0) {
    delete todo;
    --alive;
  }
  return code;
}
