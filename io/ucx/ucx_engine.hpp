#pragma once

#include "base/error.hpp"
#include "base/event_signal.hpp"
#include "base/unique_descriptor.hpp"
#include "io/ucx/listener_guard.hpp"
#include "io/ucx/ucx_library.hpp"
#include "io/ucx/ucx_memory.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::io {

/// A context and a worker of UCX, and the thread that makes all calls on them after their creation. It sleeps on the
/// event descriptor of the worker while nothing happens.
class ucx_engine {
public:
  /// Starts the thread. Only `who` may connect to the worker. Errors: `unsupported` where UCX cannot be loaded;
  /// `io_error` or `unreachable` where it cannot start with these options.
  static result<std::unique_ptr<ucx_engine>> start(const ucx_options& options, admitted_peers who);

  ucx_engine(const ucx_engine&) = delete;
  ucx_engine& operator=(const ucx_engine&) = delete;
  ~ucx_engine() {
    stop();
    end_worker();
    end_context();
  }

  const ucx_library& api() const noexcept { return *api_; }
  /// Null once they are leaked, see `halt` and `abandon`.
  ucp_worker_h worker() const noexcept { return worker_; }
  ucp_context_h context() const noexcept { return context_; }
  /// The address of the worker for peers, as UCX encodes it.
  const std::vector<std::uint8_t>& address() const noexcept { return address_; }

  /// Runs `what` on the thread, in the order of the calls. Returns false, without running it, when the thread is
  /// ending.
  bool post(std::function<void()> what) {
    {
      const std::lock_guard guard(mutex_);
      if (stopping_)
        return false;
      queue_.push_back(std::move(what));
    }
    wake();
    return true;
  }

  /// Stops progress; called on the thread. `shut` says whether the worker may be destroyed; otherwise it is leaked and
  /// never called again. Then `ended` is called. Posted functions run as before.
  void halt(std::function<bool()> shut, std::function<void()> ended) {
    if (std::exchange(halted_, true))
      return;
    shut_ = std::move(shut);
    on_halted_ = std::move(ended);
  }

  /// To be called after `stop`: the worker is leaked, and cannot be reached any more.
  void abandon() {
    if (guard_)
      guard_->shut();
    worker_ = nullptr;
    context_ = nullptr;
  }

  /// Runs what was posted, and ends the thread. Any thread but that one; again without effect.
  void stop() {
    if (!thread_.joinable())
      return;
    {
      const std::lock_guard guard(mutex_);
      stopping_ = true;
    }
    wake();
    thread_.join();
  }

private:
  explicit ucx_engine(const ucx_library* api) : api_(api) {}

  result<void> open(const ucx_options& options, admitted_peers who);

  void wake() { signal_event(wake_.get()); }

  void end_worker() {
    if (worker_ != nullptr)
      api_->ucp_worker_destroy(std::exchange(worker_, nullptr));
  }
  void end_context() {
    if (context_ != nullptr)
      api_->ucp_cleanup(std::exchange(context_, nullptr));
  }

  void run();
  bool run_queue();
  void sleep();

  const ucx_library* api_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::uint8_t> address_;
  std::optional<listener_guard> guard_;
  int events_ = -1;
  unique_descriptor wake_;
  std::mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  bool halted_ = false;
  bool copied_by_kernel_ = false;
  std::function<bool()> shut_;
  std::function<void()> on_halted_;
  std::thread thread_;
};

} // namespace troupe::io
