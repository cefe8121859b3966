#include "cli/service_manager.hpp"

#include "base/unique_descriptor.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>

namespace troupe::cli {

void tell_service_manager(std::string_view state) {
  const char* name = std::getenv("NOTIFY_SOCKET");
  // A path, or an abstract name, which begins with @ here and with a zero byte in the kernel.
  if (name == nullptr || (*name != '/' && *name != '@'))
    return;
  const std::string_view path(name);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path)
    return;
  std::memcpy(to.sun_path, path.data(), path.size());
  if (*name == '@')
    to.sun_path[0] = '\0';
  const unique_descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket)
    return;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  static_cast<void>(
      ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), length));
}

} // namespace troupe::cli
