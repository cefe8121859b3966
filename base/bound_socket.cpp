#include "base/bound_socket.hpp"

#include "base/tcp_connect.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace troupe {

namespace {

using addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

result<addresses> resolve(std::string_view section, const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const auto code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (code == 0)
    return addresses(found, ::freeaddrinfo);
  const std::string why = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
  return fail(errc::invalid_argument, "\"" + host + "\" is not an address, and not a name that can be resolved (" +
                                          why + "): set " + std::string{section} +
                                          ".host to an address of this machine, such as 127.0.0.1");
}

/// The error for an address that the system refuses.
tl::unexpected<error> refused(int code, std::string_view section, const std::string& place) {
  const std::string keys{section};
  switch (code) {
  case EADDRINUSE:
    return fail(errc::busy, "cannot listen on " + place + ": another process uses that port; stop it, or set " + keys +
                                ".port to another one, 0 for any that is free");
  case EACCES:
    return fail(errc::io_error, "cannot listen on " + place + ": this user may not use a port that low; set " + keys +
                                    ".port to one above 1023, or give the program CAP_NET_BIND_SERVICE");
  case EADDRNOTAVAIL:
    return fail(errc::io_error, "cannot listen on " + place + ": no interface of this machine has that address; set " +
                                    keys + ".host to one that `ip address` shows, or to 127.0.0.1");
  default:
    return fail(errc::io_error,
                "cannot listen on " + place + ", see " + keys + ".host and " + keys + ".port: " + std::strerror(code));
  }
}

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return 0;
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
                                       : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// Returns 0 or an errno.
int bind_to(int socket, const addrinfo& where) {
  const int yes = 1;
  const int no = 0;
  // A port with connections in TIME_WAIT is free; one with a listener is not.
  if (::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0)
    return errno;
  if (where.ai_family == AF_INET6 &&
      IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(where.ai_addr)->sin6_addr) &&
      ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0)
    return errno;
  return ::bind(socket, where.ai_addr, where.ai_addrlen) == 0 ? 0 : errno;
}

} // namespace

bound_socket::bound_socket(unique_descriptor descriptor, int family, std::string place) noexcept
    : descriptor_(std::move(descriptor)), family_(family), port_(port_of(descriptor_.get())), place_(std::move(place)) {
}

result<bound_socket> bound_socket::open(std::string_view section, const std::string& host, std::uint16_t port) {
  const auto found = resolve(section, host, port);
  if (!found)
    return tl::unexpected(found.error());
  const auto* chosen = found->get();
  for (const auto* x = chosen; x != nullptr; x = x->ai_next)
    if (x->ai_family == AF_INET) {
      chosen = x;
      break;
    }
  const auto place = endpoint_text(host, port);
  unique_descriptor descriptor(::socket(chosen->ai_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!descriptor)
    return refused(errno, section, place);
  if (const auto code = bind_to(descriptor.get(), *chosen); code != 0)
    return refused(code, section, place);
  bound_socket out(std::move(descriptor), chosen->ai_family, place);
  out.section_ = section;
  return out;
}

result<void> bound_socket::listen() {
  if (::listen(descriptor_.get(), SOMAXCONN) != 0)
    return refused(errno, section_, place_);
  return {};
}

int bound_socket::release() noexcept {
  return descriptor_.release();
}

} // namespace troupe
