#pragma once

#include "base/unique_descriptor.hpp"
#include "io/engine/engine.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe::io {

/// An engine on one io_uring. One thread owns the ring and makes all calls on it; callers queue requests and
/// registrations and wake the thread through an eventfd when it sleeps.
///
/// Where the kernel permits, completions are run only by that thread (SINGLE_ISSUER, DEFER_TASKRUN), and files and
/// buffers are registered, which saves reference counting and pinning per transfer. Each of these is optional.
class uring_engine final : public engine {
public:
  /// Error: `unsupported` when this kernel or container has no usable io_uring; the text has the reason.
  static result<std::unique_ptr<engine>> start(const engine_options& options, completion_sink sink);

  ~uring_engine() override;

  result<std::uint32_t> add_file(int descriptor) override;
  void remove_file(std::uint32_t file) override;
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) override;
  void remove_buffer(std::uint32_t buffer) override;
  void submit(std::span<const request> requests) override;
  void cancel(std::uint64_t tag) override;
  void stop() override;
  engine_counters counters() const override;
  std::string describe() const override;

private:
  class loop;

  /// The queue from callers to the ring thread.
  struct commands {
    std::vector<request> requests;
    std::vector<std::uint64_t> cancelled_tags;
    std::vector<std::function<void(loop&)>> calls;
    bool stop = false;
  };

  uring_engine(const engine_options& options, completion_sink sink);

  /// Appends to the commands and wakes the ring thread if it sleeps; returns false if it has ended.
  template <class Append>
  bool leave(Append append);

  /// Runs `what` on the ring thread and waits for it; returns false if that has ended.
  bool call(const std::function<void(loop&)>& what);

  engine_options options_;
  completion_sink sink_;
  unique_descriptor wake_up_;

  std::mutex mutex_;
  commands commands_;
  bool ended_ = false;
  /// The ring thread sleeps or is about to, and has seen no command. Set under the mutex when the commands are taken;
  /// reset by the caller that wakes it, or by the thread itself.
  std::atomic<bool> sleeping_{false};

  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> continued_{0};
  std::atomic<std::uint64_t> unmatched_{0};

  // Set before `start` returns, constant afterwards.
  std::string description_;
  std::thread::id ring_thread_;
  loop* loop_ = nullptr;

  std::mutex stop_mutex_;
  std::thread thread_;
};

} // namespace troupe::io
