#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace troupe::test {

/// Listens on a free port of the loopback interface and is no node.
class listener {
public:
  enum class manner : std::uint8_t {
    /// Accepts and says nothing.
    silent,
    /// Accepts and closes.
    closes,
    /// Accepts and sends bytes without a meaning.
    garbage,
    /// Accepts and answers as a web server.
    http,
  };

  /// Throws std::system_error.
  explicit listener(manner how);
  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;
  ~listener();

  std::uint16_t port() const noexcept { return port_; }
  /// That were accepted so far.
  std::size_t connections() const noexcept { return connections_; }

private:
  void accept_all();

  manner how_;
  int socket_ = -1;
  int stop_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<std::size_t> connections_{0};
  std::thread thread_;
};

/// Connects to a port of the loopback interface, sends bytes without a meaning, the same for the same seed, and leaves.
void send_garbage(std::uint16_t port, std::uint32_t seed);

} // namespace troupe::test
