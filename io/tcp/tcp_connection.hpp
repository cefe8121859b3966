#pragma once

#include "io/tcp/memory_frames.hpp"
#include "io/tcp/stream_schedule.hpp"
#include "io/tcp/tcp_stream.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::io::tcp {

/// Has the pieces that the connections of one peer move, and is notified of what becomes of them. Its calls come from
/// the threads of the connections.
class piece_source {
public:
  piece_source() = default;
  piece_source(const piece_source&) = delete;
  piece_source& operator=(const piece_source&) = delete;
  virtual ~piece_source() = default;

  /// What the connection is to send next.
  virtual std::vector<piece> take(stream_number stream) = 0;
  /// The other end has been reached, with its key where the connection is encrypted. Called once.
  virtual void on_open(stream_number stream) = 0;
  /// So many bytes have moved.
  virtual void on_progress(stream_number stream, std::size_t bytes) = 0;
  /// The oldest piece of the connection has been moved.
  virtual void on_answered(stream_number stream) = 0;
  /// The connection is closed, and accesses no memory of a piece any more. Called once.
  virtual void on_failed(stream_number stream, error why) = 0;
  /// Is called now and then while the connection has something in transfer.
  virtual void on_tick() = 0;
};

/// Where a connection goes, and how.
struct connection_target {
  endpoint to;
  bool encrypted = false;
  connection_token token{};
  /// The address of this host from which it comes, if not the one that the system chooses.
  std::optional<host_address> from{};
};

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
  /// That connection of `streams`. `turn_bytes`: what it moves before it is another one's turn.
  tcp_connection(const connection_target& target, const stream_name& which, std::uint32_t streams,
                 std::size_t turn_bytes, std::shared_ptr<piece_source> source);

  void connect();
  /// Takes the pieces that are there, and begins to send them.
  void work();
  void close(const error& why) { fail_with(why); }

  /// The descriptor, at least 0 while there is a connection, and the events to wait for, as `poll` takes them.
  int descriptor() const noexcept { return stream_ ? stream_.descriptor() : -1; }
  short events() const noexcept { return stream_.events(hello_sent_ < sizeof hello_ || sent_ < tasks_.size()); }
  /// `on_ready` is to be called without waiting for an event.
  bool has_more() const noexcept { return stream_ && stream_.has_more(); }
  /// Handles an event. Moves a bounded number of bytes, so that other connections get their turn.
  void on_ready();
  /// Whether `on_tick` is to be called.
  bool is_busy() const noexcept { return !tasks_.empty(); }
  void on_tick();

private:
  /// An order that has begun and is not answered.
  struct task {
    order words;
    std::span<std::byte> here;
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
  void take_pieces();
  void fail_with(error why);

  connection_target target_;
  stream_number number_;
  std::size_t turn_bytes_;
  /// Null after the connection has failed.
  std::shared_ptr<piece_source> source_;
  tcp_stream stream_;
  hello hello_;
  std::size_t hello_sent_ = 0;
  std::uint32_t last_number_ = 0;
  std::deque<task> tasks_;
  /// The number of tasks that were sent completely: the first ones.
  std::size_t sent_ = 0;
};

} // namespace troupe::io::tcp
