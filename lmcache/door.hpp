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

/// Whether a connection may be served: the rule for `door_options::admits`.
bool may_connect(const peer_socket& x) noexcept;

struct door_options {
  std::string host = "127.0.0.1";
  /// 0: whichever port is free.
  std::uint16_t port = 0;
  std::uint32_t chunk_tokens = 256;
  /// Requests that have been handed on and not answered; what is more is refused at once.
  std::uint32_t waiting_max = 65536;
  /// Of these, those of one client, and what they take of memory. A client with as many that registers loses its
  /// connection, since no answer to a registration says no.
  std::uint32_t waiting_per_client_max = 4096;
  std::uint64_t waiting_bytes_per_client_max = std::uint64_t{64} << 20U;
  /// Connections at one time; what is more is closed. See `connections_within`.
  std::uint32_t connections_max = 1024;
  /// A frame of a message, and what may come of a message before its end has come.
  std::uint32_t message_bytes_max = std::uint32_t{32} << 20U;
  /// Who is served: by default this process's user, and root.
  std::function<bool(const peer_socket&)> admits = may_connect;
  /// What the door counts of.
  std::shared_ptr<counters> counts = std::make_shared<counters>();
};

/// The ZeroMQ socket that LMCache's clients connect to, and its thread: takes messages apart, hashes their tokens,
/// hands requests on, and sends answers. Knows a client by its connection: a number that is given once, and whose end
/// is told.
///
/// Whose a connection is, is found out when it is accepted, before anything of it is read: what is a stranger's is
/// closed. ZeroMQ's own question (ZAP) comes later and does not say which connection it is about, so it is answered
/// with yes and serves to tell connections apart.
///
/// ZeroMQ limits a frame, and the complete messages that wait; it collects the parts of a message without a limit. So
/// the door compares what has arrived at a connection, as the kernel counts it, with the messages that have come of it,
/// and closes one whose message does not end. No client has more requests waiting than one may.
///
/// Nothing that arrives ends the thread: what cannot be read is logged, counted, and refused in the way of its
/// operation, where it has one.
class door {
public:
  /// Called by the thread of the door; they must be short.
  struct listener {
    std::function<void(incoming)> asked;
    std::function<void(client_number)> gone;
  };

  /// Has the port, and takes nothing yet. Errors: `busy` where another process has the port, `io_error`,
  /// `invalid_argument` for a host that has no address.
  static result<std::unique_ptr<door>> open(const door_options& options);

  door(const door&) = delete;
  door& operator=(const door&) = delete;
  /// As `stop`.
  ~door();

  std::uint16_t port() const noexcept;

  /// From now on messages are taken. To be called once.
  void serve(listener to);

  /// The third frame of the answer, or none. Thread-safe; of a client that is gone: nothing happens.
  void answer(const incoming& to, std::optional<std::string> frame);

  /// Takes nothing any more, sends what was answered, as far as that goes without waiting, and closes the socket. Once
  /// it returns the listener is not called any more.
  void stop();

private:
  struct implementation;
  explicit door(std::unique_ptr<implementation> x);

  std::unique_ptr<implementation> x_;
};

} // namespace troupe::lmcache
