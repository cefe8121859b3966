#include <dlfcn.h>
#include <netdb.h>
#include <string_view>
#include <unistd.h>

/// A library for LD_PRELOAD that makes the name servers of names in ".silent" silent: asking for one never returns.

extern "C" [[gnu::visibility("default")]] int getaddrinfo(const char* name, const char* service, const addrinfo* wanted,
                                                          addrinfo** found) {
  using function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto ask = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = wanted != nullptr && (wanted->ai_flags & AI_NUMERICHOST) != 0;
  while (!numeric && name != nullptr && std::string_view(name).ends_with(".silent"))
    ::pause();
  return ask(name, service, wanted, found);
}
