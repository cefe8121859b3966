#pragma once

#include "io/tcp/memory_frames.hpp"
#include "io/tcp/tcp_stream.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::io::tcp {

/// A connection of the node that has authenticated. One thread serves it.
struct served_stream {
  tcp_stream stream;
  std::uint32_t number = 0;
  std::atomic<bool> ending = false;

  /// The thread is to return, and touches the memory no more after the read or write in progress.
  bool is_ending() const noexcept { return ending.load(); }
};

/// The connections of one node to one memory: which of them have come, and which have ended. A node has one connection
/// end another one before it repeats the orders of that one, or opens it again. So whatever is in the buffers of a
/// connection that has failed never reaches memory that others use by then.
///
/// Thread-safe.
class exposed_streams {
public:
  explicit exposed_streams(std::uint32_t most) : most_(most) {}

  /// Takes a connection that has authenticated. The first one says how many there are. Null where the hello does not
  /// fit the others, the connection was ended before it came, or an earlier one of its number has not ended. The object
  /// lives until one of a later attempt joins, which is after `leave`; that closes its connection.
  served_stream* join(const hello& words, tcp_stream stream);
  bool all_have_come() const;
  /// How many connections the node makes at once; 0 before the first has come.
  std::size_t count() const;

  /// The thread of the connection has returned: closes it.
  void leave(served_stream& x);

  /// Ends that connection for `by`, and returns true when no thread serves it any more. False if the order makes no
  /// sense, or if `by` is to end, too.
  bool end(const served_stream& by, const stream_name& which);

  /// Ends all.
  void stop();

private:
  struct place {
    std::unique_ptr<served_stream> stream{};
    /// The last one that has come, or was ended before.
    std::uint32_t attempt = 0;
    /// No thread serves a connection of this attempt, now or later.
    bool over = false;
  };
  void end_one(place& x);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t most_;
  bool stopping_ = false;
  /// As many as the node makes; empty before the first has come.
  std::vector<place> places_;
};

} // namespace troupe::io::tcp
