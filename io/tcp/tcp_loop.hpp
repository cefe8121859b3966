#pragma once

#include "base/unique_descriptor.hpp"
#include "io/tcp/tcp_connection.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace troupe::io::tcp {

/// A thread that serves connections, and sleeps while it has no work.
class tcp_loop {
public:
  explicit tcp_loop(unique_descriptor wake);
  tcp_loop(const tcp_loop&) = delete;
  tcp_loop& operator=(const tcp_loop&) = delete;
  ~tcp_loop();

  /// Closes all connections and ends the thread. Others may post until they have been joined, too, to no effect.
  void stop();
  void join();

  /// Runs `what` on the thread, in the order of the calls.
  void post(std::function<void()> what);
  /// Serves `x` until it has no connection any more. Called on the thread.
  void serve(std::shared_ptr<tcp_connection> x) { connections_.push_back(std::move(x)); }

private:
  void run();
  void run_queue();
  void tick();

  unique_descriptor wake_;
  std::mutex mutex_;
  std::vector<std::function<void()>> queue_;
  // The members below belong to the thread.
  bool stopping_ = false;
  std::vector<std::shared_ptr<tcp_connection>> connections_;
  std::chrono::steady_clock::time_point next_tick_{};
  std::thread thread_;
};

} // namespace troupe::io::tcp
