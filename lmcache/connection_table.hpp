#pragma once

#include "base/clock.hpp"
#include "lmcache/peer.hpp"
#include "lmcache/session_table.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe::lmcache {

/// A position in the order in which connections begin and end.
using connection_moment = std::uint64_t;

/// Whether the other end of a connection may be served.
enum class verdict : std::uint8_t { undecided, admitted, refused };

/// An open connection.
struct connection {
  int descriptor = -1;
  connection_moment began = 0;
  /// Decided when it began. The cookie is that of its socket, 0 if unknown; the peer is known for an admitted
  /// connection.
  verdict decided = verdict::undecided;
  std::uint64_t cookie = 0;
  std::optional<peer_socket> socket;

  /// 0 until its first message has come; then everything below is valid.
  client_number number = 0;
  /// The address of answers.
  std::string name;
  std::int32_t process = 0;
  bool process_known = false;
  /// The earliest time of the next log line about malformed messages.
  timestamp next_complaint = timestamp::min();

  /// The number of its unanswered requests, and their memory.
  std::uint32_t waiting = 0;
  std::uint64_t waiting_bytes = 0;
  /// Messages of it came before it was decided, and were dropped.
  bool missed = false;

  /// Received bytes when the last message was complete, and whether one was completed since the last check.
  std::uint64_t received = 0;
  bool delivered = false;
};

/// Finds the connection by which a message has come.
///
/// ZeroMQ gives the descriptor of a message's connection, but the kernel reuses a descriptor as soon as the first
/// connection has ended: messages of the ended one may still be delivered then, after its end was reported, and after
/// messages of the new one. So a descriptor alone identifies nothing. The events of one thread have this order:
///
/// - A connection begins before it is admitted, and only admitted ones deliver messages.
/// - It is admitted before it ends, or never; and it ends before another one begins with its descriptor.
/// - At the moment of its admission, all earlier beginnings and ends are known here: `now` is read after that.
///
/// So the connection of a message that was admitted at a moment is the one with the descriptor, if that one began by
/// the moment; if it began later, or there is none, the message's own connection has ended. That holds however late the
/// message comes, and for any later owner of the descriptor. A descriptor has at most one connection, and a connection
/// one client number: so when it ends, all its state ends.
class connection_table {
public:
  /// Returns the client whose connection had the descriptor, if there was one: it has ended without a report.
  std::optional<client_number> begun(int descriptor);

  /// Returns the client that has ended, if the connection had delivered a message.
  std::optional<client_number> ended(int descriptor);

  /// The moment for a connection that is admitted now.
  connection_moment now() const noexcept { return now_; }

  /// Null if it has ended. Valid until a connection begins or ends.
  connection* find(int descriptor, connection_moment admitted);

  /// The connection that began at this moment; null if it has ended. Valid likewise.
  connection* find_begun(int descriptor, connection_moment began);

  /// Descriptors of all connections, including those without messages.
  std::vector<int> descriptors() const;
  std::size_t size() const noexcept { return connections_.size(); }

  /// Checks a connection with this many received bytes, when all its complete messages have been taken. True if more
  /// than `limit` bytes have come since its last message: they are not the beginning of a valid one.
  static bool is_flooding(connection& x, std::uint64_t received, std::uint64_t limit) noexcept;

  /// For a connection from `find` with its first message: it is a client from now on.
  void enroll(connection& x, std::string name);

  /// The connection of a client; null if it has ended. Valid until a connection begins or ends.
  connection* find_client(client_number client);

  std::size_t clients() const noexcept { return descriptors_.size(); }

private:
  std::unordered_map<int, connection> connections_;
  std::unordered_map<client_number, int> descriptors_;
  client_number last_client_ = 0;
  connection_moment now_ = 0;
};

} // namespace troupe::lmcache
