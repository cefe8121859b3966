#pragma once

#include "http_client/connection.hpp"

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::client_detail {

/// Limits how many connections there are, and keeps those that are unused. Thread-safe.
class connection_pool {
public:
  connection_pool(std::size_t limit, duration max_idle_time) : limit_(limit), max_idle_time_(max_idle_time) {}

  /// The right to one connection, until it is destroyed; with an open one, if there was one.
  class place {
  public:
    place(connection_pool& pool, std::unique_ptr<connection> x) : pool_(&pool), connection_(std::move(x)) {}
    place(place&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), connection_(std::move(other.connection_)) {}
    place& operator=(place&&) = delete;
    ~place() {
      if (pool_ != nullptr)
        pool_->give_back(std::move(connection_));
    }

    /// Null if a connection has to be opened.
    connection* open() const noexcept { return connection_.get(); }
    void set(std::unique_ptr<connection> x) noexcept { connection_ = std::move(x); }

  private:
    connection_pool* pool_;
    std::unique_ptr<connection> connection_;
  };

  /// Waits until a place is free; nothing if none is by the deadline.
  std::optional<place> take(timestamp deadline);

  /// Closes all that are unused: one of them was found dead, so they probably all are.
  void forget_idle();

  std::size_t idle() const;

private:
  struct idle_connection {
    std::unique_ptr<connection> open;
    timestamp since;
  };

  void give_back(std::unique_ptr<connection> x) noexcept;

  const std::size_t limit_;
  const duration max_idle_time_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  std::size_t taken_ = 0;
  /// The last one given back is the first to be used again, so that the others can grow old.
  std::vector<idle_connection> idle_;
};

} // namespace troupe::client_detail
