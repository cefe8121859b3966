#pragma once

#include "tests/integration/free_ports.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace troupe::test {

/// The etcd program in PATH, or where .ci/run puts it; a warning if there is none.
std::optional<std::filesystem::path> etcd_program();

/// One member, over the loopback interface.
class etcd_server {
public:
  /// `more`: further options of etcd; with `tls`, those of its certificates are among them.
  explicit etcd_server(std::filesystem::path program, arguments more = {}, bool tls = false)
      : program_(std::move(program)), more_(std::move(more)), tls_(tls) {
    start();
  }

  void start();
  void kill();
  void forget_all() { std::filesystem::remove_all(data_.path() / "etcd"); }
  void send(int signal_number) { running_->send(signal_number); }

  std::uint16_t port() const noexcept { return port_; }
  /// One of the members is a port without a listener.
  nlohmann::json config() const;

private:
  std::filesystem::path program_;
  arguments more_;
  bool tls_;
  scratch_directory data_;
  std::uint16_t port_ = free_port();
  std::uint16_t peers_port_ = free_port();
  std::optional<process> running_;
};

} // namespace troupe::test
