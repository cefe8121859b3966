#include "tests/integration/listener.hpp"

#include "tests/integration/process.hpp"

#include <array>
#include <netinet/in.h>
#include <poll.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace troupe::test {

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}

std::string garbage(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string out(random() % 4096 + 1, '\0');
  for (auto& x : out)
    x = static_cast<char>(random());
  return out;
}

/// The peer may have disconnected already, which is allowed.
void send_all(int socket, std::string_view bytes) {
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

} // namespace

listener::listener(manner how) : how_(how) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto address = loopback(0);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  check_call(socket_ >= 0 && ::bind(socket_, any, length) == 0 && ::listen(socket_, 16) == 0, "listen");
  check_call(::getsockname(socket_, any, &length) == 0, "getsockname");
  port_ = ntohs(address.sin_port);
  stop_ = ::eventfd(0, EFD_CLOEXEC);
  check_call(stop_ >= 0, "eventfd");
  thread_ = std::thread([this] { accept_all(); });
}

listener::~listener() {
  ::eventfd_write(stop_, 1);
  thread_.join();
  ::close(socket_);
  ::close(stop_);
}

void listener::accept_all() {
  std::vector<int> open;
  for (;;) {
    std::array<pollfd, 2> watched{{{socket_, POLLIN, 0}, {stop_, POLLIN, 0}}};
    if (::poll(watched.data(), watched.size(), -1) < 0)
      continue;
    if (watched[1].revents != 0)
      break;
    const int peer = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer < 0)
      continue;
    ++connections_;
    if (how_ == manner::garbage)
      send_all(peer, garbage(static_cast<std::uint32_t>(connections_)));
    if (how_ == manner::http)
      send_all(peer, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    if (how_ == manner::closes)
      ::close(peer);
    else
      open.push_back(peer);
  }
  for (const auto x : open)
    ::close(x);
}

void send_garbage(std::uint16_t port, std::uint32_t seed) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = loopback(port);
  check_call(socket >= 0, "socket");
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    send_all(socket, garbage(seed));
  ::close(socket);
}

} // namespace troupe::test
