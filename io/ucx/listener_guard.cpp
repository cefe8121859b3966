#include "io/ucx/listener_guard.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace troupe::io {

namespace {

std::set<std::pair<int, std::uint64_t>> open_sockets() {
  std::set<std::pair<int, std::uint64_t>> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    struct stat facts {};
    if (::fstat(descriptor, &facts) == 0 && S_ISSOCK(facts.st_mode))
      out.emplace(descriptor, facts.st_ino);
  }
  return out;
}

/// The local port, in network byte order; nothing for sockets without one.
std::uint16_t port_of(int descriptor) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &length) != 0)
    return 0;
  if (name.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(&name)->sin_port;
  return name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port : std::uint16_t{0};
}

/// The port; nothing for sockets that do not listen.
std::uint16_t listens_on(int descriptor) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0)
    return 0;
  return port_of(descriptor);
}

bool is_in(std::span<const std::uint8_t> address, std::uint16_t port) {
  std::array<std::uint8_t, 2> bytes{};
  std::copy_n(reinterpret_cast<const std::uint8_t*>(&port), 2, bytes.begin());
  return std::search(address.begin(), address.end(), bytes.begin(), bytes.end()) != address.end();
}

} // namespace

listener_guard::listener_guard(admitted_peers who) : who_(std::move(who)) {
  before_ = open_sockets();
}

result<std::size_t> listener_guard::apply(std::span<const std::uint8_t> address) {
  // Checks the sender of each packet, 12 bytes into its IP header.
  std::vector<sock_filter> program;
  const auto count = static_cast<std::uint8_t>(std::min<std::size_t>(who_.addresses.size(), 200));
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(SKF_NET_OFF) + 12));
  for (std::uint8_t i = 0; i < count; ++i)
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, who_.addresses[i], static_cast<std::uint8_t>(count - i), 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
  program.push_back(BPF_STMT(BPF_RET | BPF_K, 0xffffffff));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  std::size_t guarded = 0;
  for (const auto& x : open_sockets()) {
    const auto port = before_.contains(x) ? std::uint16_t{0} : listens_on(x.first);
    if (port == 0 || !is_in(address, port))
      continue;
    if (::setsockopt(x.first, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) != 0)
      return tl::unexpected<error>(system_error(errno, "cannot restrict access to the listener of UCX"));
    ports_.insert(port);
    ++guarded;
  }
  return guarded;
}

void listener_guard::shut() {
  // UCX treats a listener that is shut down as an internal error, and ends the process.
  std::array nothing{sock_filter BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog filter{static_cast<unsigned short>(nothing.size()), nothing.data()};
  for (const auto& x : open_sockets()) {
    if (before_.contains(x) || !ports_.contains(port_of(x.first)))
      continue;
    if (listens_on(x.first) != 0)
      static_cast<void>(::setsockopt(x.first, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter));
    else
      static_cast<void>(::shutdown(x.first, SHUT_RDWR));
  }
}

} // namespace troupe::io
