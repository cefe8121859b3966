#pragma once

#include "base/clock.hpp"
#include "base/error.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct socket_address;

/// Asks for the addresses of names, each in a thread of its own, so that a caller can stop waiting: the resolver of the
/// C library cannot be interrupted, and with silent name servers it takes seconds for each server and search domain. A
/// thread whose callers have stopped waiting ends when the resolver returns. Until then a name has one thread, whose
/// answer is for all who ask: however often a silent name is asked for, it takes no threads from others. Any thread may
/// call.
class name_lookups {
public:
  using addresses = std::vector<socket_address>;
  using question = std::function<result<addresses>()>;

  /// The most threads at once, hence names, unless the caller chooses another limit; those count whose callers wait no
  /// longer.
  static constexpr std::uint32_t usual_threads = 16;

  explicit name_lookups(std::uint32_t threads = usual_threads)
      : threads_(threads), shared_(std::make_shared<shared>()) {}

  /// Calls `what` in a thread and returns its result, or that of an earlier call for the same name which has not
  /// returned yet. Blocks for `limit` at most, also while there are as many threads as may be, and until `cancelled`,
  /// which is asked now and then, is true. What `what` refers to has to live until it returns, even after this function
  /// has returned. Errors: those of `what`; `timeout`; `cancelled`; `io_error` where no thread can be started.
  result<addresses> ask(const std::string& name, question what, duration limit,
                        const std::function<bool()>& cancelled = {});

private:
  using lookup = std::shared_ptr<std::optional<result<addresses>>>;

  /// Shared with the threads, which may outlive this object.
  struct shared {
    std::mutex mutex;
    /// A thread has an answer, and ends.
    std::condition_variable changed;
    /// The lookups that have a thread, by name.
    std::map<std::string, lookup> open;
  };

  /// The lookup of the name, which is begun if there is none. The caller holds the mutex.
  static result<lookup> join(const std::shared_ptr<shared>& all, const std::string& name, question what);
  static result<void> wait(shared& all, std::unique_lock<std::mutex>& held, timestamp until,
                           const std::function<bool()>& cancelled, const std::function<bool()>& is_over);

  const std::uint32_t threads_;
  const std::shared_ptr<shared> shared_;
};

} // namespace troupe
