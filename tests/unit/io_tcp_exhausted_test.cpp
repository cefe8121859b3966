#include "base/unique_descriptor.hpp"
#include "io/tcp/memory_place.hpp"
#include "io/tcp/tcp_memory.hpp"
#include "tests/catch.hpp"
#include "tests/patience.hpp"
#include "tests/unit/remote_ends.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <netinet/in.h>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

/// A client whose process has no free descriptors, and a node that connects.

namespace io_tcp_exhausted_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// No descriptor can be made while this is there.
class no_descriptors {
public:
  no_descriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const unique_descriptor lowest_free(::dup(STDIN_FILENO));
    auto now = before_;
    now.rlim_cur = static_cast<rlim_t>(lowest_free.get());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &now) == 0);
  }
  no_descriptors(const no_descriptors&) = delete;
  no_descriptors& operator=(const no_descriptors&) = delete;
  ~no_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
  rlimit before_{};
};

/// The processor time of the waiting thread, in ticks.
long ticks_of_exposed_memory() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto end = text.rfind(')');
    if (end == std::string::npos || text.find("(troupe-exposer") == std::string::npos)
      continue;
    std::istringstream fields(text.substr(end + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i)
      fields >> skipped;
    long user = 0;
    long system = 0;
    fields >> user >> system;
    return user + system;
  }
  return -1;
}

} // namespace

TEST_CASE("tcp memory: without a free descriptor the listener does not spin, and it accepts once there is one",
          "[tcp]") {
  const std::array from{loopback};
  const auto memory = io::make_tcp_exposer({loopback}, false, 1)->expose(65536, from);
  REQUIRE(memory);
  const auto place = io::tcp::memory_place::parse((*memory)->name());
  REQUIRE(place);
  sockaddr_in listening{};
  listening.sin_family = AF_INET;
  listening.sin_port = htons(place->where.front().port);
  listening.sin_addr.s_addr = htonl(loopback.ipv4());
  const unique_descriptor waiting(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(waiting);
  // The thread names itself.
  REQUIRE(eventually([] { return ticks_of_exposed_memory() >= 0; }));
  const auto before = ticks_of_exposed_memory();
  {
    const no_descriptors none;
    REQUIRE(::connect(waiting.get(), reinterpret_cast<const sockaddr*>(&listening), sizeof listening) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }
  // A tick is 10 ms; in circles it would be up to 150 of them.
  CHECK(ticks_of_exposed_memory() - before < 15);
  const auto made = io::make_tcp_mover({1, false, 1});
  REQUIRE(made);
  const remote_end_of far(*made, (*memory)->name());
  std::vector<std::byte> some(4096);
  CHECK(far.move(io::remote_direction::get, {{some, 0}}));
}

} // namespace io_tcp_exhausted_test
