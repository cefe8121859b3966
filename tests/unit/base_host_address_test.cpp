#include "base/bound_socket.hpp"
#include "base/host_address.hpp"
#include "base/host_identity.hpp"
#include "base/tcp_connect.hpp"
#include "tests/catch.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace base_host_address_test {

using namespace troupe;

namespace {

host_address address_of(const char* text) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  REQUIRE(::inet_pton(AF_INET6, text, &six.sin6_addr) == 1);
  return *host_address::of(reinterpret_cast<const sockaddr&>(six));
}

} // namespace

TEST_CASE("host address: an IPv4 address is the same address on sockets of both families", "[base]") {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(0x0a000102);
  const auto plain = host_address::of(reinterpret_cast<const sockaddr&>(four));
  REQUIRE(plain);
  CHECK(plain == address_of("::ffff:10.0.1.2"));
  CHECK(plain->is_ipv4());
  CHECK(plain->ipv4() == 0x0a000102);
  CHECK(plain->text() == "10.0.1.2");
  const auto back = socket_address::of(*plain, 4711);
  CHECK_FALSE(back.is_ipv6());
  CHECK(back.text() == "10.0.1.2");
  CHECK(back.port() == 4711);
  const sockaddr local{AF_UNIX, {}};
  CHECK_FALSE(host_address::of(local));
}

TEST_CASE("host address: IPv6 addresses are distinguished by what they reach", "[base]") {
  CHECK(address_of("::1") == host_address::ipv6_loopback());
  CHECK(address_of("::1").is_loopback());
  CHECK(address_of("::ffff:127.0.0.9").is_loopback());
  CHECK_FALSE(address_of("2001:db8::1").is_loopback());
  CHECK_FALSE(address_of("2001:db8::1").is_ipv4());
  CHECK_FALSE(address_of("::10.0.0.1").is_ipv4());
  CHECK(address_of("fe80::1").is_link_local());
  CHECK_FALSE(address_of("fec0::1").is_link_local());
  CHECK(address_of("2001:db8::1").text() == "2001:db8::1");
  const auto back = socket_address::of(address_of("2001:db8::1"), 80);
  CHECK(back.is_ipv6());
  CHECK(back.text() == "2001:db8::1");
  CHECK(back.port() == 80);
}

TEST_CASE("host address: lists of addresses are read, and nothing else", "[base]") {
  const auto two = parse_addresses(" 10.0.0.1 ,2001:db8::1");
  REQUIRE(two);
  REQUIRE(two->size() == 2);
  CHECK(two->front().text() == "10.0.0.1");
  CHECK(two->back().text() == "2001:db8::1");
  CHECK(parse_addresses("")->empty());
  CHECK(parse_addresses("  ")->empty());
  for (const auto* const wrong :
       {"10.0.0", "host", "10.0.0.1,", ",10.0.0.1", "10.0.0.1 10.0.0.2", "[::1]", "10.0.0.1:80"})
    CHECK_FALSE(parse_addresses(wrong));
}

TEST_CASE("host address: what an interface reaches without a router is on its network", "[base]") {
  const auto of = [](std::uint32_t x) { return host_address::of_ipv4(x); };
  CHECK(is_on_network_of(host_address::ipv4_loopback(), of(0x7f112233)));
  CHECK_FALSE(is_on_network_of(host_address::ipv4_loopback(), of(0x0a000001)));
  CHECK_FALSE(is_on_network_of(host_address::ipv4_loopback(), host_address::ipv6_loopback()));
  CHECK_FALSE(is_on_network_of(of(0x7f000005), of(0x7f000001)));
}

TEST_CASE("host address: the address towards a listener is that of a connection to it, of either family", "[base]") {
  const auto* const host = GENERATE("127.0.0.1", "::1");
  auto listening = bound_socket::open("actors", host, 0);
  REQUIRE(listening);
  REQUIRE(listening->listen());
  const auto own = address_towards(host, listening->port(), std::chrono::seconds(20));
  REQUIRE(own);
  CHECK(own->text() == host);
  CHECK(interface_with(*own) == "lo");
}

TEST_CASE("host address: the address towards a host that cannot be reached is an error that says why", "[base]") {
  CHECK(address_towards("no.such.host.invalid", 1, std::chrono::seconds(20)).error().text.find("cannot be resolved") !=
        std::string::npos);
  CHECK(address_towards("::1", 1, std::chrono::seconds(20)).error().text == "connection refused");
  CHECK(interface_with(host_address{}).empty());
  CHECK_FALSE(host_identity().empty());
  for (const auto& x : host_addresses())
    CHECK((!x.is_loopback() && !x.is_link_local()));
}

} // namespace base_host_address_test
