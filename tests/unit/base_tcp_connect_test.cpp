#include "base/connect_race.hpp"
#include "base/tcp_connect.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <chrono>
#include <netinet/in.h>
#include <sys/socket.h>
#include <vector>

namespace base_tcp_connect_test {

using namespace troupe;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr timestamp start{};

socket_address on_loopback(std::uint32_t last, std::uint16_t port) {
  socket_address out;
  auto& name = reinterpret_cast<sockaddr_in&>(out.name);
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(0x7f000000U | last);
  name.sin_port = htons(port);
  out.size = sizeof name;
  return out;
}

struct listening {
  listening(std::uint32_t last, int backlog) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address = on_loopback(last, 0);
    socklen_t size = address.size;
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address.name), address.size) == 0);
    REQUIRE(::listen(socket.get(), backlog) == 0);
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address.name), &size) == 0);
  }

  unique_descriptor socket;
  socket_address address;
};

/// An address that drops what comes: its backlog is full.
struct silent : listening {
  explicit silent(std::uint32_t last) : listening(last, 0) {
    for (auto& x : callers) {
      x = unique_descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      static_cast<void>(::connect(x.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size));
    }
  }

  std::vector<unique_descriptor> callers = std::vector<unique_descriptor>(4);
};

/// A port where nothing listens.
socket_address refusing(std::uint32_t last) {
  return listening(last, 1).address;
}

} // namespace

TEST_CASE("connect race: the next address is tried after 250 ms, or when one has failed", "[base]") {
  connect_race race({false, false, false});
  CHECK(race.start(start) == std::size_t{0});
  CHECK_FALSE(race.start(start));
  CHECK(race.wake() == start + milliseconds(250));
  CHECK_FALSE(race.start(start + milliseconds(249)));
  CHECK(race.start(start + milliseconds(250)) == std::size_t{1});
  CHECK_FALSE(race.start(start + milliseconds(260)));
  race.on_failed(start + milliseconds(270));
  CHECK(race.start(start + milliseconds(270)) == std::size_t{2});
  CHECK(race.wake() == timestamp::max());
  CHECK_FALSE(race.is_over());
  race.on_failed(start + milliseconds(280));
  CHECK_FALSE(race.is_over());
  race.on_failed(start + milliseconds(290));
  CHECK(race.is_over());
}

TEST_CASE("connect race: families take turns, beginning with the resolver's first", "[base]") {
  connect_race race({true, true, true, false, false});
  std::vector<std::size_t> order;
  while (const auto next = race.start(start)) {
    order.push_back(*next);
    race.on_failed(start);
  }
  CHECK(order == std::vector<std::size_t>{0, 3, 1, 4, 2});
  CHECK(race.is_over());
  CHECK(connect_race({}).is_over());
}

TEST_CASE("tcp connect: a silent or refusing address does not keep from the next one", "[base]") {
  const silent first(2);
  const listening good(3, 4);
  const auto made = connect_to_any({first.address, refusing(4), good.address}, seconds(60));
  REQUIRE(made);
  sockaddr_in name{};
  socklen_t size = sizeof name;
  REQUIRE(::getpeername(made->get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
  CHECK(name.sin_addr.s_addr == htonl(0x7f000003));
}

TEST_CASE("tcp connect: the error says what each address did", "[base]") {
  const silent first(2);
  const auto both = connect_to_any({first.address, refusing(4)}, seconds(3));
  REQUIRE_FALSE(both);
  CHECK(both.error().code == errc::unreachable);
  CHECK(both.error().text == "127.0.0.2: timed out, 127.0.0.4: connection refused");
  const auto one = connect_to_any({first.address}, milliseconds(50));
  REQUIRE_FALSE(one);
  CHECK(one.error().code == errc::timeout);
  CHECK(one.error().text == "timed out");
  const auto none = connect_to_any({first.address}, seconds(0));
  REQUIRE_FALSE(none);
  CHECK(none.error().code == errc::timeout);
  CHECK(none.error().text == "timed out");
  CHECK(connect_to_any({refusing(4), refusing(5)}, seconds(60)).error().text == "connection refused");
  CHECK(connect_to_any({}, seconds(60)).error().code == errc::unreachable);
  CHECK(connect_to_any({first.address}, seconds(60), [] { return true; }).error().code == errc::cancelled);
}

TEST_CASE("tcp connect: a name that does not resolve is distinguished from one that does not answer", "[base]") {
  const auto found = resolve_host("a.invalid", 80);
  REQUIRE_FALSE(found);
  CHECK(found.error().text.find("\"a.invalid\" cannot be resolved") != std::string::npos);
  const auto numeric = resolve_host("::1", 80);
  REQUIRE(numeric);
  CHECK(numeric->front().is_ipv6());
  CHECK(numeric->front().text() == "::1");
}

TEST_CASE("tcp connect: an address takes no time to resolve", "[base]") {
  const auto cancelled = [] { return true; };
  CHECK(resolve_host("127.0.0.1", 80, seconds(0), cancelled));
  CHECK(resolve_host("::1", 80, seconds(0), cancelled));
  const auto late = resolve_host("a.invalid", 80, seconds(0));
  REQUIRE_FALSE(late);
  CHECK(late.error().code == errc::timeout);
  CHECK(late.error().text == "the host \"a.invalid\" cannot be resolved: no name server has answered in time");
  CHECK(resolve_host("a.invalid", 80, seconds(60), cancelled).error().code == errc::cancelled);
}

} // namespace base_tcp_connect_test
