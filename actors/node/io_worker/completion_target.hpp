#pragma once

#include "io/engine/engine.hpp"
#include "messages/messages.hpp"

#include <mutex>
#include <span>

namespace troupe {

/// A channel for completions from an engine's thread to an io worker. The engine is created before the actor, so that a
/// start that fails is reported before there are actors. The worker is set when it starts and cleared when it ends,
/// which also breaks the reference cycle worker → engine → worker. Thread-safe.
class completion_target {
public:
  void set(io_worker_actor worker) {
    std::lock_guard guard(mutex_);
    worker_ = std::move(worker);
  }

  void clear() {
    io_worker_actor last; // released outside of the lock
    std::lock_guard guard(mutex_);
    std::swap(last, worker_);
  }

  void deliver(std::span<const io::completion> completions) {
    io_completions out;
    out.records.items.reserve(completions.size());
    for (const auto& c : completions)
      out.records.items.push_back({c.tag, static_cast<std::uint32_t>(c.status), c.system_errno});
    // The message is sent under the lock, which `clear` takes: after `clear`, no thread of the engine uses the handle
    // any more. Sending does not block; it appends to a mailbox.
    std::lock_guard guard(mutex_);
    if (worker_)
      caf::anon_send(worker_, std::move(out));
  }

private:
  std::mutex mutex_;
  io_worker_actor worker_;
};

} // namespace troupe
