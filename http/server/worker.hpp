#pragma once

#include "base/clock.hpp"
#include "http/server/connection.hpp"
#include "http/server/connection_context.hpp"
#include "http/server/mailbox.hpp"
#include "http/server/shared_state.hpp"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

namespace troupe::http {

/// One io thread and its connections. All functions are for that thread only, unless they say otherwise.
class worker final : public connection_context {
public:
  using executor = boost::asio::io_context::executor_type;

  /// Limit of connections in the reserve of one worker.
  static constexpr std::uint32_t max_reserve = 64;

  explicit worker(shared_state& shared);
  ~worker() override;

  /// Serves until `drain` has been called and the last connection has closed.
  void run() noexcept;

  /// For posting; any thread.
  boost::asio::io_context& context() noexcept { return context_; }
  /// Its connections, including those that are being handed over. For any thread.
  std::size_t load() const noexcept { return load_.load(std::memory_order_relaxed); }
  /// Counts a connection that will be handed over. For any thread.
  void expect_connection() noexcept { load_.fetch_add(1, std::memory_order_relaxed); }

  /// Takes over an accepted socket that was counted by `expect_connection`.
  void adopt(const arrival& came);
  /// Ends each connection when it is idle, and the rest at the deadline.
  void drain(timestamp deadline);

private:
  bool serve_round();
  void leave(const arrival& came) noexcept;
  void forget(std::uint64_t id) noexcept override;
  void wake() override;
  void deliver_answers();
  void schedule_check();
  void check_connections();
  void end_if_drained();

  boost::asio::io_context context_;
  boost::asio::executor_work_guard<executor> work_;
  boost::asio::basic_waitable_timer<std::chrono::steady_clock, boost::asio::wait_traits<std::chrono::steady_clock>,
                                    executor>
      timer_;
  const duration check_interval_;
  bool is_check_scheduled_ = false;
  timestamp drain_deadline_ = timestamp::max();

  std::unordered_map<std::uint64_t, std::shared_ptr<connection>> connections_;
  /// Kept between checks for its memory.
  std::vector<std::shared_ptr<connection>> checked_;
  /// Connections beyond the limit, the oldest first. The oldest is closed when there are too many: a probe was answered
  /// by then, and silent ones do not block others.
  std::set<std::uint64_t> reserve_;
  std::uint64_t last_id_ = 0;
  std::atomic<std::size_t> load_{0};

  std::vector<late_answer> arrived_;
};

} // namespace troupe::http
