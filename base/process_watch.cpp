#include "base/process_watch.hpp"

#include "base/local_socket.hpp"

#include <cerrno>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe {

result<process_watch> process_watch::open(std::int32_t process) {
  unique_descriptor opened(static_cast<int>(::syscall(SYS_pidfd_open, process, 0U)));
  if (opened)
    return process_watch(std::move(opened));
  const auto number = std::to_string(process);
  switch (errno) {
  case ESRCH:
  case EINVAL: // below 1
  case ENOENT: // the number of a thread
    return fail(errc::unreachable,
                "there is no process " + number +
                    " here: a client must run on the node's host and in its process namespace (hostPID in "
                    "Kubernetes, --pid=host with Docker)");
  case ENOSYS:
    return fail(errc::unsupported, "process " + number + " cannot be watched: that takes Linux 5.3 or newer");
  case EPERM: // the call itself requires no permission
  case EACCES:
    return fail(errc::unsupported,
                "process " + number +
                    " cannot be watched: the system call pidfd_open is forbidden to the node, by the "
                    "seccomp profile of its container, as Docker's before 20.10; allow it there");
  default:
    return tl::unexpected(system_error(errno, "cannot watch process " + number));
  }
}

result<process_watch> process_watch::of_peer(int socket) {
  // SO_PEERPIDFD, which the headers of older systems lack.
  constexpr int peer_pidfd = 77;
  int descriptor = -1;
  socklen_t size = sizeof descriptor;
  if (::getsockopt(socket, SOL_SOCKET, peer_pidfd, &descriptor, &size) == 0)
    return process_watch(unique_descriptor(descriptor));
  const auto code = errno;
  // The number may have been reused by now.
  if (code == ESRCH || code == EINVAL)
    return fail(errc::unreachable, "the process that connected has ended");
  if (code != ENOPROTOOPT)
    return tl::unexpected(system_error(code, "cannot watch the process that connected"));
  const auto who = peer_of(socket);
  if (!who)
    return tl::unexpected(who.error());
  if (who->process == 0)
    return fail(errc::unsupported, "its process is in a process namespace that is not visible to the node, and "
                                   "watching it requires Linux 6.5 or newer; start both in one process "
                                   "namespace (hostPID in Kubernetes, --pid=host with Docker)");
  return open(who->process);
}

bool process_watch::gone() {
  pollfd what{descriptor_.get(), POLLIN, 0};
  return ::poll(&what, 1, 0) == 1 && (what.revents & POLLIN) != 0;
}

result<std::unique_ptr<watched_process>> watch_process(std::int32_t process) {
  if (process == ::getpid())
    return nullptr;
  auto opened = process_watch::open(process);
  if (!opened)
    return tl::unexpected(std::move(opened.error()));
  return std::make_unique<process_watch>(std::move(*opened));
}

} // namespace troupe
