#include "io/tcp_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace troupe::io {

namespace {

struct free_addresses {
  void operator()(addrinfo* x) const noexcept { ::freeaddrinfo(x); }
};
using addresses = std::unique_ptr<addrinfo, free_addresses>;

result<addresses> resolve(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const auto code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found); code != 0)
    return fail(errc::unreachable, "the host \"" + host + "\" cannot be resolved: " + ::gai_strerror(code));
  return addresses(found);
}

unique_descriptor socket_for(const addrinfo& x) {
  return unique_descriptor(::socket(x.ai_family, x.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, x.ai_protocol));
}

/// Returns 0 or an error number.
int wait_connected(int descriptor, std::chrono::steady_clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    if (left <= 0)
      return ETIMEDOUT;
    pollfd waits{descriptor, POLLOUT, 0};
    const auto got = ::poll(&waits, 1, static_cast<int>(std::min<long long>(left, 60'000)));
    if (got < 0 && errno != EINTR)
      return errno;
    if (got <= 0)
      continue;
    int code = 0;
    socklen_t size = sizeof code;
    return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &size) == 0 ? code : errno;
  }
}

std::string why_not(int code) {
  switch (code) {
  case ECONNREFUSED:
    return "connection refused";
  case ETIMEDOUT:
    return "timed out";
  default:
    return std::generic_category().message(code);
  }
}

} // namespace

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

result<unique_descriptor> connect_tcp(const std::string& host, std::uint16_t port, duration limit) {
  const auto found = resolve(host, port);
  if (!found)
    return tl::unexpected<error>(found.error());
  const auto until = later(std::chrono::steady_clock::now(), limit);
  int code = EHOSTUNREACH;
  for (const auto* x = found->get(); x != nullptr; x = x->ai_next) {
    auto made = socket_for(*x);
    if (!made) {
      code = errno;
      continue;
    }
    code = ::connect(made.get(), x->ai_addr, x->ai_addrlen) == 0 ? 0 : errno;
    if (code == EINPROGRESS)
      code = wait_connected(made.get(), until);
    if (code == 0)
      return made;
  }
  return fail(errc::unreachable, "cannot connect to " + endpoint_text(host, port) + ": " + why_not(code));
}

std::uint16_t bound_port(int descriptor) noexcept {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) != 0)
    return 0;
  if (name.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(name).sin_port);
  if (name.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(name).sin6_port);
  return 0;
}

} // namespace troupe::io
