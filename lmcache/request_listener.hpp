#pragma once

#include "base/error.hpp"
#include "lmcache/counters.hpp"
#include "lmcache/incoming.hpp"
#include "lmcache/peer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe::lmcache {

/// Whether a connection is admitted: the default rule of `listener_options::admits`.
bool may_connect(const peer_socket& x) noexcept;

struct listener_options {
  std::string host = "127.0.0.1";
  /// 0: any free port.
  std::uint16_t port = 0;
  std::uint32_t chunk_tokens = 256;
  /// Limit of requests that are passed on and not answered; more are rejected at once.
  std::uint32_t waiting_max = 65536;
  /// The limit for one client, and for the memory of its requests. A client that reaches it and registers is
  /// disconnected, since an answer to a registration cannot reject it.
  std::uint32_t waiting_per_client_max = 4096;
  std::uint64_t waiting_bytes_per_client_max = std::uint64_t{64} << 20U;
  /// Limit of connections; more are closed. See `connections_within`.
  std::uint32_t connections_max = 1024;
  /// Whether requests contain the tokens of stored chunks.
  bool keeps_tokens = false;
  /// Limit of a frame, and of the bytes that may arrive before the end of a message.
  std::uint32_t message_bytes_max = std::uint32_t{32} << 20U;
  /// The admission rule: by default this process's user, and root.
  std::function<bool(const peer_socket&)> admits = may_connect;
  /// The listener's counters.
  std::shared_ptr<counters> counts = std::make_shared<counters>();
};

/// The listener for LMCache's clients: a ZeroMQ socket with its thread. It parses messages, hashes their tokens, passes
/// requests on, and sends answers. A client is identified by its connection: a number that is used once, and whose end
/// is reported.
///
/// The user of a connection is determined when it is accepted, before anything of it is read: connections of other
/// users are closed. ZeroMQ's own authentication (ZAP) comes later and does not identify the connection, so it is
/// always granted and only serves to distinguish connections.
///
/// ZeroMQ limits a frame, and the complete messages that wait, but it collects the parts of a message without a limit.
/// So the listener compares the bytes received by a connection, as the kernel counts them, with its messages, and
/// closes a connection whose message does not end. The number of waiting requests of a client is limited.
///
/// No message ends the thread: a malformed one is logged, counted, and rejected in the way of its operation, if it has
/// one.
class listener {
public:
  /// Called by the listener's thread; must be short.
  struct request_handler {
    std::function<void(incoming)> asked;
    std::function<void(client_number)> gone;
  };

  /// Binds the port, but accepts nothing yet. Errors: `busy` if another process has the port, `io_error`,
  /// `invalid_argument` for a host without an address.
  static result<std::unique_ptr<listener>> open(const listener_options& options);

  listener(const listener&) = delete;
  listener& operator=(const listener&) = delete;
  /// As `stop`.
  ~listener();

  std::uint16_t port() const noexcept;

  /// Starts accepting messages. To be called once.
  void serve(request_handler to);

  /// Sends an answer with this third frame, or without one. Thread-safe; does nothing for a disconnected client.
  void answer(const incoming& to, std::optional<std::string> frame);
  /// Sends one more answer to a request that was answered: the next one of a stream. As `answer`.
  void answer_again(const incoming& to, std::string frame);
  /// Ends a request that gets no answer. As `answer`.
  void forget(const incoming& x);

  /// Stops accepting, sends the pending answers as far as that does not block, and closes the socket. After it returns,
  /// the callbacks are not called any more.
  void stop();

private:
  struct implementation;
  explicit listener(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> x_;
};

} // namespace troupe::lmcache
