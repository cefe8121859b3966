#pragma once

#include "io/engine/engine.hpp"
#include "io/usrbio/mount.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace troupe::io {

/// An engine on USRBIO, the rings in shared memory through which 3FS's daemon receives transfer requests without the
/// kernel. One thread owns two rings, one for reads and one for writes, and makes all calls on them.
///
/// Memory in a file of /dev/shm is registered with the daemon directly. Other memory is copied through a part of
/// /dev/shm that the library makes.
///
/// It has the contract of all engines, with two additions. A transfer in progress cannot be cancelled, and ends when
/// the daemon answers. When the daemon dies, transfers in progress end as `io_error` once it is certain that their
/// memory is no longer written to (`usrbio_options::quarantine`); transfers that are submitted before the next daemon
/// appears end so at once.
class usrbio_engine final : public engine {
public:
  /// Errors: `unsupported` (no client library, or too old; not on 3FS), `io_error`.
  static result<std::unique_ptr<engine>> start(const engine_options& options, completion_sink sink);

  ~usrbio_engine() override;

  result<std::uint32_t> add_file(int descriptor) override;
  void remove_file(std::uint32_t file) override;
  result<std::uint32_t> add_buffer(std::span<std::byte> bytes) override;
  void remove_buffer(std::uint32_t buffer) override;
  void submit(std::span<const request> requests) override;
  void cancel(std::uint64_t tag) override;
  void stop() override;
  engine_counters counters() const override;
  bool goes_past_the_kernel() const noexcept override { return true; }
  std::string describe() const override;

private:
  class loop;

  /// The queue from callers to the engine's thread.
  struct commands {
    std::vector<request> requests;
    std::vector<std::uint64_t> cancelled_tags;
    std::vector<std::function<void(loop&)>> calls;
    bool stop = false;
  };

  usrbio_engine(const engine_options& options, completion_sink sink, std::shared_ptr<usrbio::mount> at);

  template <class Append>
  bool leave(Append append);
  bool call(const std::function<void(loop&)>& what);
  void wake();

  const engine_options options_;
  const completion_sink sink_;
  const std::shared_ptr<usrbio::mount> mount_;

  std::mutex mutex_;
  std::condition_variable left_;
  commands commands_;
  /// A command was queued, or the daemon appeared or was lost.
  bool woken_ = false;
  bool ended_ = false;

  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> continued_{0};
  std::atomic<std::uint64_t> unmatched_{0};

  std::thread::id engine_thread_;
  loop* loop_ = nullptr;
  std::uint64_t watcher_ = 0;

  std::mutex stop_mutex_;
  std::thread thread_;
};

} // namespace troupe::io
