#include "tests/integration/etcd_server.hpp"

#include "tests/catch.hpp"

#include <cstdlib>
#include <sstream>

namespace troupe::test {

std::optional<std::filesystem::path> etcd_program() {
  const auto* path = std::getenv("PATH");
  std::istringstream folders((path == nullptr ? std::string{} : path + std::string(":")) + TROUPE_SOURCE_DIR +
                             "/build/tools/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::filesystem::exists(std::filesystem::path(folder) / "etcd"))
      return std::filesystem::path(folder) / "etcd";
  WARN("skipped: there is no etcd in PATH (package etcd-server)");
  return std::nullopt;
}

void etcd_server::start() {
  const auto url = [](std::uint16_t port, bool tls = false) {
    return (tls ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port);
  };
  launch how;
  how.arguments = {program_.string(),
                   "--data-dir",
                   (data_.path() / "etcd").string(),
                   "--listen-client-urls",
                   url(port_, tls_),
                   "--advertise-client-urls",
                   url(port_, tls_),
                   "--listen-peer-urls",
                   url(peers_port_),
                   "--initial-advertise-peer-urls",
                   url(peers_port_),
                   "--initial-cluster",
                   "default=" + url(peers_port_)};
  how.arguments.insert(how.arguments.end(), more_.begin(), more_.end());
  running_.emplace(how);
  running_->wait_for_line(process::stream::err, "ready to serve");
}

void etcd_server::kill() {
  running_->kill();
  running_.reset();
}

nlohmann::json etcd_server::config() const {
  return {{"endpoints", {{{"host", "127.0.0.1"}, {"port", free_port()}}, {{"host", "127.0.0.1"}, {"port", port_}}}},
          {"lease", "4 s"}};
}

} // namespace troupe::test
