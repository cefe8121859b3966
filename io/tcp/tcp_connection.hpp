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

/// How memory is named: four bytes of an IPv4 address and two of a port in the order of the network, and whether all is
/// encrypted. The key is the token.
std::vector<std::uint8_t> tcp_address(const endpoint& where, bool encrypted);
bool names_tcp_memory(const remote_memory_name& name);
bool is_encrypted(const remote_memory_name& name);

/// The node's end of one connection. Belongs to the thread of its loop.
///
/// Invariants:
/// - Orders are answered in the order in which they were sent. So it is known where the next bytes belong that come,
///   and they are read right into their place.
/// - Nothing is read for an order that has not been sent whole: its bytes may still be on their way out of memory of
///   this process, which is somebody else's once the order has ended.
/// - Whatever is not as it has to be ends the connection, and with it all orders. What they have left in memory of this
///   process belongs to pages that nobody has committed.
class tcp_connection {
public:
  /// The name is one of this transport (`names_tcp_memory`).
  tcp_connection(remote_memory_name name, std::function<void(const error&)> lost);

  void connect();
  void move(remote_direction direction, const std::vector<remote_move>& moves, remote_end end);
  void close(const std::function<void()>& closed);

  /// Not below 0 while there is a connection, and what is waited for then, as `poll` takes it.
  int descriptor() const noexcept { return stream_ ? stream_.descriptor() : -1; }
  short events() const noexcept { return stream_.events(hello_sent_ < sizeof hello_ || sent_ < tasks_.size()); }
  /// `on_ready` is to be called without waiting for any of these.
  bool has_more() const noexcept { return stream_ && stream_.has_more(); }
  /// Something of it has come about. Moves a bounded number of bytes, for the sake of the others.
  void on_ready();

  /// Bytes that have been moved. Any thread.
  std::uint64_t moved() const noexcept { return moved_.load(std::memory_order_relaxed); }

private:
  /// A call of `move`.
  struct batch {
    remote_end end;
    std::size_t open = 0;
  };
  /// What was begun and is not answered.
  struct task {
    order words;
    std::span<std::byte> here;
    std::shared_ptr<batch> of;
    /// Of `words`, and of the bytes behind them where it is a put.
    std::size_t sent = 0;
    answer reply;
    /// Of `reply`, and of the bytes behind it where it is a get.
    std::size_t heard = 0;

    std::size_t to_send() const noexcept;
    std::size_t to_hear() const noexcept;
  };

  /// How many bytes were moved.
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
  /// How many of them were sent whole: the first ones.
  std::size_t sent_ = 0;
  std::optional<error> failure_;
  std::atomic<std::uint64_t> moved_{0};
};

} // namespace troupe::io::tcp
