#include "base/unique_descriptor.hpp"
#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

namespace packaging_test {

/// The installed files of the program; tests/packages/ has those that scripts make, and scripts/check-package tests the
/// packages themselves.

using namespace troupe;
using namespace troupe::test;

namespace {

const std::filesystem::path packaging = std::filesystem::path(TROUPE_SOURCE_DIR) / "packaging";

/// Stands for systemd: receives its notifications, one at a time.
class service_manager {
public:
  explicit service_manager(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, name.data(), name.size());
    if (name.front() == '@')
      at.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    check_call(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at), length) == 0, "bind");
    const timeval limit{60, 0};
    check_call(::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0, "setsockopt");
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  ~service_manager() { ::unsetenv("NOTIFY_SOCKET"); }

  std::string hear() const {
    std::array<char, 256> text{};
    const auto n = ::recv(socket_.get(), text.data(), text.size(), 0);
    return n < 0 ? "nothing" : std::string(text.data(), static_cast<std::size_t>(n));
  }

private:
  unique_descriptor socket_;
};

} // namespace

TEST_CASE("packaging: serve notifies the service manager when it is ready and when it stops") {
  const scratch_directory scratch;
  const auto name = GENERATE(as<std::string>{}, "notify", "@troupe-notify-");
  const service_manager manager(name.front() == '@' ? name + std::to_string(::getpid()) : (scratch / name).string());
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  CHECK(manager.hear().starts_with("READY=1\n"));
  CHECK(node.stop() == 0);
  CHECK(manager.hear().starts_with("STOPPING=1\n"));
}

TEST_CASE("packaging: serve runs without a service manager") {
  const scratch_directory scratch;
  for (const char* name : {"/no/such/socket", "relative", ""}) {
    ::setenv("NOTIFY_SOCKET", name, 1);
    serving_node node(write_config(scratch.path(), node_config(scratch.path())));
    ::unsetenv("NOTIFY_SOCKET");
    CHECK(node.stop() == 0);
  }
}

TEST_CASE("packaging: the config of the service is valid and used by the unit") {
  const auto checked = run(program_with(
      {"check-config", (packaging / "node.json").string(), "--set", "data_dir=/tmp/troupe-no-such-directory"}));
  INFO(checked.err);
  CHECK(checked.code == 0);
  std::ifstream in(packaging / "troupe.service");
  std::ostringstream unit;
  unit << in.rdbuf();
  for (const char* line : {"\nType=notify\n", "\nExecStart=/usr/bin/troupe serve --config /etc/troupe/node.json\n",
                           "\nUser=troupe\n", "\nNoNewPrivileges=yes\n", "\nProtectSystem=strict\n",
                           "\nLimitMEMLOCK=infinity\n", "\nRemoveIPC=no\n", "\nRestartPreventExitStatus=2\n"})
    CHECK(unit.str().find(line) != std::string::npos);
}

} // namespace packaging_test
