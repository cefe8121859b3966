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

/// Says, while it lives, that a node is waited for, why it is not there, and how long it will be waited for; from the
/// second second on, in a thread of its own. Nothing for a node of this process.
class wait_notice {
public:
  /// `display` is this object's alone meanwhile.
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
