#include "base/unique_descriptor.hpp"
#include "lmcache/connection_table.hpp"
#include "tests/catch.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lmcache_connections_test {

using namespace troupe;
using namespace troupe::lmcache;

TEST_CASE("A message is from the connection that it was sent by, whoever has its descriptor by then", "[lmcache]") {
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
  REQUIRE(table.name_of(number) != nullptr);
  CHECK(*table.name_of(number) == "a");

  // Its end, and messages of it that come later.
  CHECK(table.ended(5) == number);
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.name_of(number) == nullptr);
  CHECK(table.clients() == 0);
  CHECK_FALSE(table.ended(5));

  // Also those that come when another one has the descriptor, before and after the first message of that one.
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

TEST_CASE("A connection of which nothing has come ends as nobody", "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  CHECK_FALSE(table.ended(5));
  CHECK_FALSE(table.ended(7));
  CHECK(table.clients() == 0);
}

TEST_CASE("A descriptor has one connection: where an end was not told of, the next beginning tells", "[lmcache]") {
  connection_table table;
  CHECK_FALSE(table.begun(5));
  const auto first = table.now();
  table.enroll(*table.find(5, first), "a");
  CHECK(table.begun(5) == client_number{1});
  CHECK(table.find(5, first) == nullptr);
  CHECK(table.clients() == 0);
}

TEST_CASE("A socket that its process has closed is nobody's, and not root's", "[lmcache]") {
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

} // namespace lmcache_connections_test
