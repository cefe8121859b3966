#pragma once

#include "io/remote_memory.hpp"
#include "io/tcp/memory_frames.hpp"
#include "io/tcp/tcp_stream.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::io::tcp {

/// Encodes the address of memory: four bytes of an IPv4 address and two of a port in network byte order, and whether
/// the connection is encrypted. The key is the token.
std::vector<std::uint8_t> tcp_address(const endpoint& where, bool encrypted);
bool names_tcp_memory(const remote_memory_name& name);
bool is_encrypted(const remote_memory_name& name);

/// The node's end of one connection. Belongs to the thread of its loop.
///
/// Invariants:
/// - Orders are answered in the order in which they were sent. So the target of the next incoming bytes is known, and
///   they are read directly into it.
/// - Nothing is read for an order that has not been sent completely: its bytes may still be read from memory of this
///   process, which may be reused once the order has ended.
/// - Any protocol violation ends the connection and all of its orders. Bytes that they have left in memory of this
///   process belong to uncommitted pages.
class tcp_connection {
public:
  /// `name` is one of this transport (`names_tcp_memory`).
  tcp_connection(remote_memory_name name, std::function<void(const error&)> lost);

  void connect();
  void move(remote_direction direction, const std::vector<remote_move>& moves, remote_end end);
  void close(const std::function<void()>& closed);

  /// The descriptor, at least 0 while there is a connection, and the events to wait for, as `poll` takes them.
  int descriptor() const noexcept { return stream_ ? stream_.descriptor() : -1; }
  short events() const noexcept { return stream_.events(hello_sent_ < sizeof hello_ || sent_ < tasks_.size()); }
  /// `on_ready` is to be called without waiting for an event.
  bool has_more() const noexcept { return stream_ && stream_.has_more(); }
  /// Handles an event. Moves a bounded number of bytes, so that other connections get their turn.
  void on_ready();

  /// The bytes moved so far. Any thread.
  std::uint64_t moved() const noexcept { return moved_.load(std::memory_order_relaxed); }

private:
  /// One call of `move`.
  struct batch {
    remote_end end;
    std::size_t open = 0;
  };
  /// An order that has begun and is not answered.
  struct task {
    order words;
    std::span<std::byte> here;
    std::shared_ptr<batch> of;
    /// Bytes sent of `words`, and of the bytes behind them for a put.
    std::size_t sent = 0;
    answer reply;
    /// Bytes received of `reply`, and of the bytes behind it for a get.
    std::size_t heard = 0;

    std::size_t to_send() const noexcept;
    std::size_t to_hear() const noexcept;
  };

  /// Returns the number of bytes moved.
  std::size_t send_some();
  std::size_t hear_some();
  void end_first();
  void fail_with(error why);

  remote_memory_name name_;
  std::function<void(const error&)> lost_;
  tcp_stream stream_;
  hello hello_;
  std::size_t hello_sent_ = 0;
  std::uint32_t last_number_ = 0;
  std::deque<task> tasks_;
  /// The number of tasks that were sent completely: the first ones.
  std::size_t sent_ = 0;
  std::optional<error> failure_;
  std::atomic<std::uint64_t> moved_{0};
};

} // namespace troupe::io::tcp
