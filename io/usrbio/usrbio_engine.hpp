#pragma once

#include "io/engine/queued_engine.hpp"
#include "io/usrbio/mount.hpp"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::io {

/// An engine on USRBIO, the rings in shared memory through which 3FS's daemon receives transfer requests without the
/// kernel. Its thread owns two rings, one for reads and one for writes, and makes all calls on them.
///
/// Memory in a file of /dev/shm is registered with the daemon directly. Other memory is copied through a part of
/// /dev/shm that the library makes.
///
/// It has the contract of all engines, with two additions. A transfer in progress cannot be cancelled, and ends when
/// the daemon answers. When the daemon dies, transfers in progress end as `io_error` once it is certain that their
/// memory is no longer written to (`usrbio_options::quarantine`); transfers that are submitted before the next daemon
/// appears end so at once.
class usrbio_engine final : public queued_engine {
public:
  /// Errors: `unsupported` (no client library, or too old; not on 3FS), `io_error`.
  static result<std::unique_ptr<engine>> start(const engine_options& options, completion_sink sink);

  ~usrbio_engine() override;

  bool goes_past_the_kernel() const noexcept override { return true; }
  std::string describe() const override;

private:
  class loop;

  usrbio_engine(const engine_options& options, completion_sink sink, std::shared_ptr<usrbio::mount> at);

  void wake() override;

  const std::shared_ptr<usrbio::mount> mount_;
  std::uint64_t watcher_ = 0;

  std::mutex mutex_;
  std::condition_variable wakes_;
  /// A command was queued, or the daemon appeared or was lost.
  bool woken_ = false;
};

} // namespace troupe::io
