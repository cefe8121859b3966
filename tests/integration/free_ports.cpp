#include "tests/integration/free_ports.hpp"

#include "base/bound_socket.hpp"
#include "tests/catch.hpp"

#include <fstream>
#include <random>

namespace troupe::test {

std::vector<std::uint16_t> free_ports(std::size_t count) {
  constexpr std::uint16_t first = 10'000;
  std::uint16_t end = 32'768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  REQUIRE(end > first + 1'000);
  std::random_device seed;
  std::uniform_int_distribution<int> any(first, end - 1);
  // All are held until the last one is found, so that they differ.
  std::vector<bound_socket> held;
  std::vector<std::uint16_t> out;
  for (int tries = 0; out.size() < count; ++tries) {
    REQUIRE(tries < 10'000);
    if (auto one = bound_socket::open("test", "127.0.0.1", static_cast<std::uint16_t>(any(seed)))) {
      out.push_back(one->port());
      held.push_back(std::move(*one));
    }
  }
  return out;
}

std::uint16_t free_port() {
  return free_ports(1).front();
}

} // namespace troupe::test
