#include "base/bound_socket.hpp"
#include "tests/catch.hpp"

#include <fstream>
#include <initializer_list>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace base_bound_socket_test {

using namespace troupe;

namespace {

/// The first part that a text lacks; empty if it has all.
std::string missing(const std::string& text, std::initializer_list<const char*> parts) {
  for (const auto* part : parts)
    if (text.find(part) == std::string::npos)
      return part;
  return {};
}

std::string why_not(const std::string& host, std::uint16_t port) {
  const auto x = bound_socket::open("actors", host, port);
  return x ? "" : x.error().text;
}

} // namespace

TEST_CASE("bound socket: a socket has its port before it listens, and port 0 chooses any", "[base][socket]") {
  auto x = bound_socket::open("http", "127.0.0.1", 0);
  REQUIRE(x);
  CHECK(x->port() != 0);
  CHECK(x->family() == AF_INET);
  CHECK(x->listen());
  const auto descriptor = x->release();
  int listens = 0;
  socklen_t length = sizeof listens;
  REQUIRE(::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0);
  CHECK(listens == 1);
  ::close(descriptor);
}

TEST_CASE("bound socket: an error for an unavailable port states the cause and the way out", "[base][socket]") {
  auto taken = bound_socket::open("actors", "127.0.0.1", 0);
  REQUIRE(taken);
  REQUIRE(taken->listen());
  CHECK(
      missing(why_not("127.0.0.1", taken->port()), {"another process uses that port", "set actors.port to another one",
                                                    ("127.0.0.1:" + std::to_string(taken->port())).c_str()}) == "");
  CHECK(missing(why_not("203.0.113.1", 4600), {"no interface of this machine has that address", "203.0.113.1:4600",
                                               "actors.host", "ip address"}) == "");
  CHECK(missing(why_not("no such host", 4600), {"not an address", "no such host", "actors.host"}) == "");
}

TEST_CASE("bound socket: a port that another process has taken in the meantime is detected when listening begins",
          "[base][socket]") {
  auto first = bound_socket::open("http", "127.0.0.1", 0);
  REQUIRE(first);
  auto second = bound_socket::open("http", "127.0.0.1", first->port());
  REQUIRE(second); // the first one does not listen yet
  REQUIRE(first->listen());
  const auto late = second->listen();
  REQUIRE_FALSE(late);
  CHECK(missing(late.error().text, {"another process uses that port", "http.port"}) == "");
}

TEST_CASE("bound socket: a port without permission and a port in use have different errors", "[base][socket]") {
  std::ifstream first_free("/proc/sys/net/ipv4/ip_unprivileged_port_start");
  int start = 0;
  first_free >> start;
  if (::geteuid() != 0 || start <= 1) {
    WARN("skipped: only root can become a user without rights, and ports have to be reserved");
    return;
  }
  const auto child = ::fork();
  if (child == 0) {
    if (::setresuid(65534, 65534, 65534) != 0)
      ::_exit(2);
    const auto text = why_not("127.0.0.1", 1);
    ::_exit(missing(text, {"may not use a port that low", "set actors.port to one above 1023"}).empty() ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

} // namespace base_bound_socket_test
