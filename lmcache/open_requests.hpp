#pragma once

#include "base/clock.hpp"
#include "lmcache/incoming.hpp"

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

namespace troupe::lmcache {

/// How long the server may take to answer a request; then it is answered with its type's "no". `duration::max()` for
/// registrations and unregistrations, of which `server_rules` decides.
duration time_to_answer(const incoming& x) noexcept;

/// Requests that were not answered yet: each is answered exactly once, and in time.
///
/// What a request has caused goes on when its time is over, so that whatever it is still granted can be given back. The
/// exception are blocks of a worker that a lane may be reading or writing: "no" tells the worker that it may use its
/// blocks for something else, so such a request is answered when the lane is done.
class open_requests {
public:
  using request = std::shared_ptr<const incoming>;

  void add(const request& x, timestamp now);

  /// It is about to be answered: false if it was already, and then it must not be.
  bool close(const request& x) { return open_.erase(x.get()) > 0; }

  bool is_open(const request& x) const { return open_.contains(x.get()); }
  /// It was answered, or has no time left: nothing more needs to be done for it.
  bool is_over(const request& x, timestamp now) const;

  /// What is left of its time, zero if it was answered.
  duration time_left(const request& x, timestamp now) const;

  /// A lane may be at work on blocks of its worker, or is not any more.
  void hold(const request& x, bool held);

  /// Those whose time is over; they are closed.
  std::vector<request> take_late(timestamp now);
  /// Of those that are not held, all but registrations and unregistrations; they are closed.
  std::vector<request> take_all();

  std::size_t size() const noexcept { return open_.size(); }

private:
  struct entry {
    /// Keeps the address its own.
    request kept;
    timestamp until;
    bool held = false;
  };

  std::unordered_map<const incoming*, entry> open_;
};

} // namespace troupe::lmcache
