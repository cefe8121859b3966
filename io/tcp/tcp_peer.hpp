#pragma once

#include "io/memory/remote_memory.hpp"
#include "io/tcp/memory_place.hpp"
#include "io/tcp/stream_schedule.hpp"
#include "io/tcp/tcp_connection.hpp"
#include "io/tcp/tcp_loop.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace troupe::io::tcp {

/// Counts connections to memory of other processes that were lost while others to the same memory went on, and how many
/// of them were opened again. Thread-safe.
struct connection_counts {
  std::atomic<std::uint64_t> lost{0};
  std::atomic<std::uint64_t> reopened{0};
};

/// The connections to the memory of one other process: gives them the pieces of moves, and the callers the outcome. The
/// rules are in `stream_schedule`.
///
/// Thread-safe. Callbacks are made without the lock, by the threads of the connections, and in an order that a caller
/// sees as one: all ends, then `lost`, then `closed`.
class tcp_streams final : public piece_source, public std::enable_shared_from_this<tcp_streams> {
public:
  using loss = std::function<void(const error&)>;

  tcp_streams(const stream_options& options, std::uint64_t memory_bytes, loss lost,
              std::shared_ptr<connection_counts> counts);

  /// Opens the connections, each in one of the loops, from number `first_loop` on. They come from those of the `own`
  /// addresses that are on the network of the memory's address, in turn, if there are any. Called once.
  void open(const memory_place& place, const connection_token& token,
            const std::vector<std::unique_ptr<tcp_loop>>& loops, std::size_t first_loop,
            std::vector<host_address> own = {});

  void move(remote_direction direction, const std::vector<remote_move>& moves, remote_end end);
  void close(std::function<void()> closed);
  std::uint64_t moved() const noexcept { return moved_.load(std::memory_order_relaxed); }

  std::vector<piece> take(stream_number stream) override;
  void on_open(stream_number stream) override;
  void on_progress(stream_number stream, std::size_t bytes) override;
  void on_answered(stream_number stream) override;
  void on_failed(stream_number stream, error why) override;
  void on_tick() override;

private:
  struct line {
    tcp_loop* loop = nullptr;
    std::shared_ptr<tcp_connection> connection{};
    /// Why it has failed.
    std::string why{};
    /// False while it is being opened again.
    bool open = true;
  };

  /// Has the loop of the line connect. Called with the lock.
  void connect(const stream_name& which);
  connection_target target_of(const stream_name& which) const;
  /// Wakes the connections that have something to take, but `self`, closes those that the other end has ended, and
  /// opens those whose pause has ended. Called with the lock.
  void pass_on(std::optional<stream_number> self);
  void close_all(const error& why);
  /// Ends everything when no connection is left.
  void finish_if_closed(std::unique_lock<std::mutex>& lock);

  std::uint64_t memory_bytes_;
  /// Where the memory is; without an address before `open`.
  memory_place place_;
  connection_token token_{};
  std::vector<host_address> own_;
  std::size_t turn_bytes_ = 0;
  std::shared_ptr<connection_counts> counts_;
  std::mutex mutex_;
  stream_schedule schedule_;
  std::vector<line> lines_;
  std::size_t open_ = 0;
  std::unordered_map<batch_number, remote_end> ends_;
  loss lost_;
  std::function<void()> closed_;
  std::optional<error> failure_;
  std::atomic<std::uint64_t> moved_{0};
};

} // namespace troupe::io::tcp
