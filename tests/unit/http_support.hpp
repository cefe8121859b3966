#pragma once

#include "http/server/server.hpp"
#include "tests/catch.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <vector>

/// Servers on the loopback interface, and a client that can be as rude as a test needs.

namespace troupe::http {

/// A config for tests: any port, times that a test can wait for where it has to and that no machine is too slow for.
inline config::http_config test_config() {
  config::http_config c;
  c.enabled = true;
  c.port = 0;
  c.threads = 2;
  c.hosts = "test,h";
  return c;
}

/// Starts a server, or fails the test with the error.
inline std::unique_ptr<server> started(const config::http_config& c, router routes, observer* watcher = nullptr) {
  auto x = server::start(c, std::move(routes), watcher);
  INFO((x ? std::string{} : x.error().text));
  REQUIRE(x);
  return std::move(*x);
}

/// While a test makes the server complain.
class quiet_log {
public:
  quiet_log();
  ~quiet_log();
  quiet_log(const quiet_log&) = delete;
  quiet_log& operator=(const quiet_log&) = delete;
};

inline route open_route(std::string name, handler h) {
  return {std::move(name), role::none, std::move(h), 0};
}

/// A response as received.
struct reply {
  int code = 0;
  /// Status line and headers.
  std::string head;
  std::string body;

  bool has(std::string_view line) const {
    return ("\r\n" + head).find("\r\n" + std::string{line}) != std::string::npos;
  }
};

/// A plain TCP client for any thread: errors are thrown, since assertions are only for the thread of the test. Every
/// wait ends, at the latest after a time that fails the test.
class client {
public:
  /// `from`: the address that it has.
  explicit client(std::uint16_t port, int receive_buffer = 0, const char* from = nullptr);
  virtual ~client();
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  int socket() const { return socket_; }
  /// False if the connection is broken.
  virtual bool send(std::string_view bytes);
  /// Nothing more will be sent.
  void end();
  /// Closes with a reset, so that the server's next write fails.
  void reset();
  /// The next response. `is_head`: it has no body, whatever its headers say. Nothing if the connection ends before.
  std::optional<reply> read(bool is_head = false);
  /// The next response, which there has to be.
  reply must_read(bool is_head = false);
  reply call(std::string_view request) {
    send(request);
    return must_read();
  }
  /// Reads until the server closes, and returns the bytes.
  std::string read_to_end();
  /// Whether the server closes without another byte.
  bool ends() { return read_to_end().empty(); }
  /// Until something can be read, the end included.
  void wait_for_bytes();

protected:
  /// Bytes that have arrived; 0 at the end.
  virtual std::size_t receive(std::span<char> into);

private:
  bool receive_more();

  int socket_ = -1;
  std::string received_;
};

/// Whether this machine knows its own name "localhost". A bare root file system without /etc/hosts does not.
bool knows_localhost();

/// "GET /path HTTP/1.1" and what belongs to it.
inline std::string get(std::string_view path, std::string_view more_headers = {}) {
  return "GET " + std::string{path} + " HTTP/1.1\r\nHost: test\r\n" + std::string{more_headers} + "\r\n";
}

inline std::string post(std::string_view path, std::string_view body, std::string_view more_headers = {}) {
  return "POST " + std::string{path} + " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + std::string{more_headers} + "\r\n" + std::string{body};
}

/// A directory that is removed at the end of the test.
class scratch_directory {
public:
  scratch_directory();
  ~scratch_directory();
  scratch_directory(const scratch_directory&) = delete;
  scratch_directory& operator=(const scratch_directory&) = delete;

  /// Writes a file that only its owner can read.
  std::filesystem::path write(std::string_view name, std::string_view text) const;

private:
  std::filesystem::path path_;
};

} // namespace troupe::http
