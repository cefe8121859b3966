#pragma once

#include "base/clock.hpp"
#include "io/memory/remote_memory.hpp"
#include "io/tcp/memory_frames.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::io::tcp {

/// The number of one call of `move`; never reused.
using batch_number = std::uint64_t;
using stream_number = std::uint32_t;

/// One order of a stream: a part of a move, or the order to end another stream.
struct piece {
  order_kind kind = order_kind::put;
  /// The offset in the memory of the other end; for `end_stream` the stream, as `stream_name` writes it.
  std::uint64_t offset = 0;
  std::span<std::byte> here{};
  /// 0 for `end_stream`.
  batch_number batch = 0;
};

struct stream_options {
  /// The connections of the attachment, at least one.
  std::uint32_t streams = 1;
  /// A larger move is cut, so that several streams carry it.
  std::uint64_t piece_bytes = std::uint64_t{1} << 20U;
  /// What one stream has in transfer; the rest waits for the stream that is ready first.
  std::uint64_t window_bytes = std::uint64_t{8} << 20U;
  /// A stream on which no byte has moved for this time, while another one answers, is ended.
  duration silence{};
  /// The pause before a stream that has failed is opened again, which doubles with each failure up to `reopen_most`; 0:
  /// it is not opened again.
  duration reopen{};
  duration reopen_most = std::chrono::minutes(5);
};

/// Spreads the moves of one peer over its connections: plain rules.
///
/// A piece goes to the stream with the fewest bytes in transfer, and waits where all have a full window. So a slow
/// stream gets less, and a single one is never exceeded by what a request is worth.
///
/// When a stream fails, bytes of it may still be on their way into the other end's memory. So its pieces are moved
/// again by another stream only after the other end has confirmed, on a stream that works, that it has ended the
/// failed one. A stream that is silent while another one works is ended in the same way: first at the other end.
///
/// A failed stream that is confirmed to have ended is opened again after a pause. It carries pieces from when it is
/// open, so that an attempt that fails delays none.
///
/// Invariants:
/// - A piece is in one place: it waits, or is in transfer on one stream, or is held back with a failed stream.
/// - A batch has ended when each of its pieces was answered once, or when the peer is lost.
/// - The peer is lost when no stream works: then no piece is in transfer, once all streams have failed.
class stream_schedule {
public:
  explicit stream_schedule(const stream_options& options);

  /// Adds a call of `move` with at least one move.
  batch_number add(remote_direction direction, const std::vector<remote_move>& moves, timestamp now);

  /// The pieces that the stream is to send next, in order; they are in transfer from now on.
  std::vector<piece> take(stream_number stream);
  /// Streams for which there is something to take, since the last call.
  std::vector<stream_number> take_ready();
  /// Streams that the other end has confirmed to have ended, since the last call: the caller closes those that are
  /// open, and calls `on_failed`.
  std::vector<stream_number> take_ended() { return std::exchange(ended_, {}); }
  /// Streams to be opened again, since the last call, each with the number of its attempt: the caller opens them, and
  /// calls `on_open` or `on_failed`.
  std::vector<stream_name> take_reopened() { return std::exchange(reopened_, {}); }

  /// The oldest piece of the stream was answered. Returns its batch if that has ended.
  std::optional<batch_number> on_answered(stream_number stream, timestamp now);
  void on_progress(stream_number stream, timestamp now);
  /// A stream that was opened again works.
  void on_open(stream_number stream, timestamp now);
  /// The connection is closed: nothing accesses the memory of its pieces any more. Idempotent.
  void on_failed(stream_number stream, timestamp now);
  void tick(timestamp now);

  /// No stream works. Batches that are left never end by themselves.
  bool is_lost() const noexcept { return working_ == 0; }
  std::uint32_t working() const noexcept { return working_; }
  /// Whether a stream has a piece in transfer, so that ticks are needed.
  bool is_busy() const noexcept { return !batches_.empty(); }
  std::size_t batches() const noexcept { return batches_.size(); }
  /// The first inconsistency, or an empty text. For tests.
  const char* check() const;

private:
  struct stream {
    /// Pieces in transfer or to be taken: the first `taken` were taken.
    std::deque<piece> pieces;
    std::size_t taken = 0;
    std::uint64_t bytes = 0;
    timestamp last_progress = timestamp::min();
    bool failed = false;
    /// An order to end it is on its way.
    bool ending = false;
    bool confirmed = false;
    /// It is being opened again.
    bool opening = false;
    std::uint32_t attempt = 0;
    /// When it is opened again, and the pause before the next time.
    timestamp reopen_at = timestamp::max();
    duration pause{};
    /// The pieces of a failed stream, until it is confirmed that the other end has ended it.
    std::vector<piece> held_back;

    bool works() const noexcept { return !failed && !ending && !opening; }
  };

  static std::uint64_t bytes_of(const piece& x) noexcept { return x.here.size(); }
  bool is_silent(const stream& x, timestamp now) const;
  /// The first working stream whose key is the least; null if none works.
  template <class Key>
  stream* working_with_least(const Key& key);
  /// The working stream with the fewest bytes that is not silent, or any working one; null if there is none.
  stream* carrier(timestamp now);
  void give(stream& to, piece x, timestamp now);
  void end(stream_number which, timestamp now);
  /// The stream has failed here and has ended at the other end.
  void on_over(stream& x, timestamp now);
  void reopen(stream_number which);
  void distribute(timestamp now);
  void mark_ready(const stream& x);
  std::optional<batch_number> on_piece_done(const piece& x, timestamp now);

  stream_options options_;
  std::vector<stream> streams_;
  std::uint32_t working_ = 0;
  std::deque<piece> waiting_;
  /// The open pieces of each batch.
  std::unordered_map<batch_number, std::size_t> batches_;
  batch_number last_batch_ = 0;
  std::vector<bool> ready_;
  std::vector<stream_number> ended_;
  std::vector<stream_name> reopened_;
};

/// The bytes that a connection moves before it is another one's turn, where a peer has so many connections among those
/// of a thread. So a peer with many gets no larger share than one with a single one.
std::size_t bytes_of_turn(std::uint32_t streams, std::uint32_t threads) noexcept;

} // namespace troupe::io::tcp
