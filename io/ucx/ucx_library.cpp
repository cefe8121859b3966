#include "io/ucx/ucx_library.hpp"

#include "base/log.hpp"

#include <array>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>
#include <string>

namespace troupe::io {

namespace {

/// On these signals the library would print a trace and end the process.
constexpr std::array error_signals{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

class kept_signal_handlers {
public:
  kept_signal_handlers() {
    for (std::size_t i = 0; i < error_signals.size(); ++i)
      ::sigaction(error_signals[i], nullptr, &before_[i]);
  }
  kept_signal_handlers(const kept_signal_handlers&) = delete;
  kept_signal_handlers& operator=(const kept_signal_handlers&) = delete;
  ~kept_signal_handlers() {
    for (std::size_t i = 0; i < error_signals.size(); ++i)
      ::sigaction(error_signals[i], &before_[i], nullptr);
  }

private:
  std::array<struct sigaction, error_signals.size()> before_{};
};

/// The parts of `ucs_log_func_t` that are used here. The result 0 means that the message is handled.
using log_handler = int (*)(const char* file, unsigned line, const char* function, int level, const void* component,
                            const char* format, std::va_list arguments);
constexpr int level_error = 1;
constexpr int level_warning = 2;

/// UCX would print to stdout, which other programs parse. Lost peers are not errors of this node.
int log_line(const char*, unsigned, const char*, int level, const void*, const char* format, std::va_list arguments) {
  std::array<char, 512> line{};
  static_cast<void>(std::vsnprintf(line.data(), line.size(), format, arguments));
  const auto logger = log::get("ucx");
  if (level <= level_error)
    logger->warn("{}", line.data());
  else if (level == level_warning)
    logger->info("{}", line.data());
  else
    logger->debug("{}", line.data());
  return 0;
}

template <class Function>
bool find_in(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  return out != nullptr;
}

result<const ucx_library*> load_once() {
  const kept_signal_handlers kept;
  void* const library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return fail(errc::unsupported, std::string("UCX, which transfers pages between hosts, is not installed: ") +
                                       (why != nullptr ? why : "libucp.so.0") + "; install libucx0");
  }
  static ucx_library out;
  bool whole = find_in(library, "ucs_status_string", out.ucs_status_string);
#define TROUPE_UCP_FIND(name) whole = find_in(library, #name, out.name) && whole;
  TROUPE_UCP_FUNCTIONS(TROUPE_UCP_FIND)
#undef TROUPE_UCP_FIND
  void (*push_log_handler)(log_handler) = nullptr;
  if (find_in(library, "ucs_log_push_handler", push_log_handler))
    push_log_handler(log_line);
  if (!whole)
    return fail(errc::unsupported, "the UCX of this system is too old: version 1.12 is needed");
  return &out;
}

} // namespace

result<const ucx_library*> ucx_library::load() {
  static const auto loaded = load_once();
  return loaded;
}

error ucx_library::failed(ucs_status_t status, const char* doing) const {
  return {errc::io_error, std::string("UCX: ") + doing + ": " + ucs_status_string(status)};
}

} // namespace troupe::io
