#pragma once

#include "base/clock.hpp"
#include "lmcache/incoming.hpp"

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

namespace troupe::lmcache {

/// The time limit of a request; after it, the request is answered with the rejection of its type. `duration::max()` for
/// registrations and unregistrations, which `server_rules` decides.
duration time_to_answer(const incoming& x) noexcept;

/// The unanswered requests: each is answered exactly once, and in time.
///
/// The work of a request continues after its deadline, so that later results can be released. The exception are blocks
/// of a worker that a lane may be reading or writing: a rejection tells the worker that it may reuse its blocks, so
/// such a request is answered when the lane is done.
class open_requests {
public:
  using request = std::shared_ptr<const incoming>;

  void add(const request& x, timestamp now);

  /// To be called before an answer: false if it was answered already; then no answer may be sent.
  bool close(const request& x) { return open_.erase(x.get()) > 0; }

  bool is_open(const request& x) const { return open_.contains(x.get()); }
  /// It was answered, or its deadline has passed: no more work is needed.
  bool is_over(const request& x, timestamp now) const;

  /// The remaining time, zero if it was answered.
  duration time_left(const request& x, timestamp now) const;

  /// Sets whether a lane may be working on blocks of its worker.
  void hold(const request& x, bool held);

  /// Returns and closes the requests whose deadline has passed.
  std::vector<request> take_late(timestamp now);
  /// Returns and closes all that are not held, except registrations and unregistrations.
  std::vector<request> take_all();

  std::size_t size() const noexcept { return open_.size(); }

private:
  struct entry {
    /// Keeps the address in use.
    request kept;
    timestamp until;
    bool held = false;
  };

  std::unordered_map<const incoming*, entry> open_;
};

} // namespace troupe::lmcache
