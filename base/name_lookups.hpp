#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

struct socket_address;

/// Asks for the addresses of names, each in a thread of its own, so that a caller can stop waiting: the resolver of the
/// C library cannot be interrupted, and with silent name servers it takes seconds for each server and search domain. A
/// thread whose caller has stopped waiting ends when the resolver returns. Any thread may call.
class name_lookups {
public:
  using addresses = std::vector<socket_address>;
  using question = std::function<result<addresses>()>;

  /// The most threads at once, unless the caller chooses another limit; those count whose callers wait no longer.
  static constexpr std::uint32_t usual_threads = 16;

  explicit name_lookups(std::uint32_t threads = usual_threads);

  /// Calls `what` in a thread and returns its result. Blocks for `limit` at most, also while there are as many threads
  /// as may be, and until `cancelled`, which is asked now and then, is true. What `what` refers to has to live until it
  /// returns, even after this function has returned. Errors: those of `what`; `timeout`; `cancelled`; `io_error` where
  /// no thread can be started.
  result<addresses> ask(question what, duration limit, const std::function<bool()>& cancelled = {});

private:
  /// Shared with the threads, which may outlive this object.
  struct shared {
    std::mutex mutex;
    /// A thread has an answer, and ends.
    std::condition_variable changed;
    std::uint32_t free = 0;
  };

  static result<void> wait(shared& all, std::unique_lock<std::mutex>& held, timestamp until,
                           const std::function<bool()>& cancelled, const std::function<bool()>& is_over);

  std::shared_ptr<shared> shared_;
};

} // namespace troupe
