#pragma once

#include "actors/client/link/link.hpp"
#include "base/clock.hpp"
#include "cli/progress.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace troupe::cli {

/// Shows, during its lifetime, that the program waits for a node, why the node does not answer, and how long the wait
/// may last; after one second, in a thread of its own. Shows nothing for a node of this process.
class wait_notice {
public:
  /// `display` is used by this object only until destruction.
  wait_notice(progress_display& display, const link_options& where, duration limit);
  wait_notice(const wait_notice&) = delete;
  wait_notice& operator=(const wait_notice&) = delete;
  ~wait_notice();

private:
  void tell(const node_address& where, std::chrono::steady_clock::time_point until);

  progress_display& display_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

} // namespace troupe::cli
