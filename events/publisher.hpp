#pragma once

#include "base/error.hpp"
#include "events/feed.hpp"
#include "events/hub.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace troupe::events {

struct publisher_options {
  /// ZeroMQ endpoints: `tcp://…`, with port 0 for any free one, or `ipc://…`.
  std::string endpoint;
  /// Empty: missed batches cannot be requested.
  std::string replay_endpoint;
  /// Batches that wait for one subscriber; a slower one loses batches.
  std::uint32_t queue_batches = 1000;
  hub_options rules;
};

/// The publisher of a node's events: an XPUB and a ROUTER socket of ZeroMQ with their thread, around the rules of
/// `hub`. Messages and requests are those of vLLM's publisher. Subscribers only read: a message of theirs that is no
/// request for missed batches is ignored and counted.
class publisher {
public:
  /// Binds the endpoints, and serves them from `serve` on. Errors: `busy` if another process has one of them,
  /// `invalid_argument` for a host without an address, `io_error`.
  static result<std::unique_ptr<publisher>> open(const publisher_options& options);

  publisher(const publisher&) = delete;
  publisher& operator=(const publisher&) = delete;
  /// As `stop`.
  ~publisher();

  /// The queue for registry shards.
  const std::shared_ptr<feed>& input() const noexcept;
  const std::shared_ptr<counters>& counts() const noexcept;

  /// As they were bound: with the port that was free.
  const std::string& endpoint() const noexcept;
  const std::string& replay_endpoint() const noexcept;

  /// Starts the thread. To be called once.
  void serve();

  /// Whether the files of `ipc://` endpoints are in place: otherwise no subscriber can connect any more, though those
  /// that are connected stay. Any thread; may wait for the file system.
  bool sockets_are_there() const;
  /// Binds again the `ipc://` endpoints whose file was removed. Any thread; waits for the publisher's. Errors: as of
  /// `open`, `shutting_down` when it is stopped, `timeout`.
  result<void> reopen_sockets();

  /// Publishes what has come so far, and closes the sockets.
  void stop();

private:
  struct implementation;
  explicit publisher(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> x_;
};

} // namespace troupe::events
