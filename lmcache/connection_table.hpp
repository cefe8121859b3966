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

/// Position in the order in which connections begin and end.
using connection_moment = std::uint64_t;

/// Whether the other end of a connection may be served.
enum class verdict : std::uint8_t { undecided, admitted, refused };

/// A connection that there is.
struct connection {
  int descriptor = -1;
  connection_moment began = 0;
  /// Found when it began. The cookie is that of its socket, 0 where that is not known; the other end is known of one
  /// that is admitted.
  verdict decided = verdict::undecided;
  std::uint64_t cookie = 0;
  std::optional<peer_socket> socket;

  /// 0 until the first message of it has come, and then everything below holds.
  client_number number = 0;
  /// Where answers go.
  std::string name;
  std::int32_t process = 0;
  bool process_known = false;
  /// When it may next be written of that its messages are wrong.
  timestamp next_complaint = timestamp::min();

  /// Its requests that were not answered, and what they take of memory.
  std::uint32_t waiting = 0;
  std::uint64_t waiting_bytes = 0;
  /// Messages of it came before it was decided, and were dropped.
  bool missed = false;

  /// What had arrived when the last message was known to be complete, and whether one was since the last look.
  std::uint64_t received = 0;
  bool delivered = false;
};

/// Which connection a message has come by.
///
/// The socket says by which descriptor, and the kernel gives a descriptor to another connection as soon as the first
/// one has ended: messages of the one that has ended may still be delivered then, after its end was told of, and after
/// messages of the new one. So a descriptor alone says nothing. What is known besides, by the order of one thread:
///
/// - A connection begins before it is admitted, and nothing comes by it that is not admitted.
/// - It is admitted before it ends, or never; and it ends before another one begins with its descriptor.
/// - At the moment when it is admitted, all that began or ended before is known here: `now` is read after that.
///
/// So of a message that was admitted at a moment, the connection is the one that has the descriptor, if that began by
/// the moment; if it began later, or there is none, the message's own has ended. That holds however late the message
/// comes, and whoever has the descriptor by then. A descriptor has one connection at most, and a connection one
/// client number: so when it ends, all that is known of it ends.
class connection_table {
public:
  /// The client whose connection had the descriptor, if there was one: its end was not told of, and it has ended.
  std::optional<client_number> begun(int descriptor);

  /// The client that has ended, if anything has come by the connection.
  std::optional<client_number> ended(int descriptor);

  /// What a connection that is admitted now is admitted at.
  connection_moment now() const noexcept { return now_; }

  /// Null if it has ended. Valid until a connection begins or ends.
  connection* find(int descriptor, connection_moment admitted);

  /// The connection that began at this moment; null if it has ended. Valid likewise.
  connection* find_begun(int descriptor, connection_moment began);

  /// Descriptors of all connections, also of those of which nothing has come.
  std::vector<int> descriptors() const;
  std::size_t size() const noexcept { return connections_.size(); }

  /// Looks at a connection that has `received` so many bytes, at a time when all its complete messages have been taken.
  /// True if more than `limit` bytes have come since its last message: that is not the beginning of one.
  static bool is_flooding(connection& x, std::uint64_t received, std::uint64_t limit) noexcept;

  /// Of a connection that `find` has given, and whose first message this is: it is a client from now on.
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
