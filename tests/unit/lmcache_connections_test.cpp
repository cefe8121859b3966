#include "base/accepted_socket.hpp"
#include "base/unique_descriptor.hpp"
#include "lmcache/connection_table.hpp"
#include "lmcache/request_listener.hpp"
#include "tests/catch.hpp"

#include <arpa/inet.h>
#include <array>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace lmcache_connections_test {

using namespace troupe;
using namespace troupe::lmcache;

TEST_CASE("lmcache connections: a message belongs to the connection that sent it, even if its descriptor was reused",
          "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  const auto first = table.now();
  CHECK_FALSE(table.begun(6));
  auto* const x = table.find(5, first);
  REQUIRE(x != nullptr);
  CHECK(x->number == 0);
  table.enroll(*x, "a");
  const auto number = x->number;
  CHECK(table.clients() == 1);
  REQUIRE(table.find_client(number) != nullptr);
  CHECK(table.find_client(number)->name == "a");

  // The connection ends, and messages of it arrive later.
  CHECK(table.ended(5) == number);
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.find_client(number) == nullptr);
  CHECK(table.clients() == 0);
  CHECK_FALSE(table.ended(5));

  // Later messages are refused too, before and after the first message of the next connection on the descriptor.
  CHECK_FALSE(table.begun(5));
  CHECK(table.find(5, first) == nullptr);
  auto* const y = table.find(5, table.now());
  REQUIRE(y != nullptr);
  table.enroll(*y, "b");
  const auto second = y->number;
  CHECK(second != number);
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.ended(5) == second);
}

TEST_CASE("lmcache connections: only root and the user of the node may connect", "[lmcache]") {
  const auto user = ::geteuid();
  CHECK(may_connect({.inode = 1, .user = 0}));
  CHECK(may_connect({.inode = 1, .user = user}));
  CHECK_FALSE(may_connect({.inode = 1, .user = user + 1}));
  CHECK_FALSE(may_connect({.inode = 1, .user = user == 65534 ? 65533 : uid_t{65534}}));
}

TEST_CASE("lmcache connections: a connection without a message ends without a client number", "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  CHECK_FALSE(table.ended(5));
  CHECK_FALSE(table.ended(7));
  CHECK(table.clients() == 0);
}

TEST_CASE("lmcache connections: a descriptor has one connection: the next one on it ends the previous one",
          "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  const auto first = table.now();
  table.enroll(*table.find(5, first), "a");
  CHECK(table.begun(5) == client_number{1});
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.clients() == 0);
}

TEST_CASE("lmcache connections: a socket that its process has closed has no owner and does not count as root",
          "[lmcache]") {
  const unique_descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listening.get(), at, size) == 0);
  REQUIRE(::listen(listening.get(), 1) == 0);
  REQUIRE(::getsockname(listening.get(), at, &size) == 0);
  unique_descriptor there(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(there.get(), at, size) == 0);
  const unique_descriptor here(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(here);
  const auto peer = find_peer(here.get());
  REQUIRE(peer);
  CHECK(peer->user == ::geteuid());
  CHECK(process_with(*peer) == ::getpid());
  there.reset();
  CHECK_FALSE(find_peer(here.get()));
}

TEST_CASE("lmcache connections: a connection is identified by its descriptor and its start time", "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  const auto first = table.now();
  REQUIRE(table.find_begun(5, first) != nullptr);
  CHECK(table.find_begun(5, first)->decided == verdict::undecided);
  CHECK(table.descriptors() == std::vector{5});
  CHECK(table.size() == 1);
  CHECK_FALSE(table.ended(5));
  CHECK(table.find_begun(5, first) == nullptr);
  CHECK_FALSE(table.begun(5));
  CHECK(table.find_begun(5, first) == nullptr);
}

TEST_CASE("lmcache connections: an endless message counts as flooding, and many complete ones do not", "[lmcache]") {
  connection x;
  constexpr std::uint64_t most = 100;
  CHECK_FALSE(connection_table::is_flooding(x, 90, most));
  // A message was delivered, so the bytes up to then belong to it and to earlier ones.
  x.delivered = true;
  CHECK_FALSE(connection_table::is_flooding(x, 5000, most));
  CHECK_FALSE(connection_table::is_flooding(x, 5100, most));
  CHECK(connection_table::is_flooding(x, 5101, most));
  x.delivered = true;
  CHECK_FALSE(connection_table::is_flooding(x, 5101, most));
  // The kernel does not report the count.
  CHECK_FALSE(connection_table::is_flooding(x, 0, most));
}

TEST_CASE("lmcache connections: IPv4 addresses that a client has mapped into IPv6 are found", "[lmcache]") {
  const unique_descriptor listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(::bind(listening.get(), at, size) == 0);
  REQUIRE(::listen(listening.get(), 1) == 0);
  REQUIRE(::getsockname(listening.get(), at, &size) == 0);
  const unique_descriptor there(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!there)
    return; // a host without IPv6
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = address.sin_port;
  REQUIRE(::inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr) == 1);
  REQUIRE(::connect(there.get(), reinterpret_cast<const sockaddr*>(&mapped), sizeof mapped) == 0);
  const unique_descriptor here(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(here);
  const auto peer = find_peer(here.get());
  REQUIRE(peer);
  CHECK(peer->user == ::geteuid());
  CHECK(process_with(*peer) == ::getpid());
}

TEST_CASE("lmcache connections: a held socket stays the same whichever side closes the descriptor", "[lmcache]") {
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  unique_descriptor mine(pair[0]);
  const unique_descriptor other(pair[1]);
  const auto held = held_socket::hold(mine.get());
  REQUIRE(held);
  CHECK(held->cookie() != 0);
  CHECK(held_socket::hold(other.get())->cookie() != held->cookie());
  CHECK(held_socket::hold(mine.get())->cookie() == held->cookie());
  const auto number = mine.get();
  mine.reset();
  CHECK_FALSE(held_socket::hold(number));
  held->shut_down();
  char byte = 0;
  CHECK(::recv(other.get(), &byte, 1, 0) == 0);
  CHECK(received_bytes(other.get()) == 0);
}

} // namespace lmcache_connections_test
