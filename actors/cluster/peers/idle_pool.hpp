#pragma once

#include "base/clock.hpp"

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace troupe::cluster {

/// A pool of expensive objects that wait for their next use; the one that was put in last is taken first. `kept` of
/// them stay for good. The others are handed out to be ended once they have waited for `patience`, so that a burst
/// leaves nothing behind. For one thread.
template <class T>
class idle_pool {
public:
  idle_pool(std::size_t kept, duration patience) : kept_(kept), patience_(patience) {}

  void put(T x, timestamp now) { idle_.push_back({std::move(x), now}); }

  /// Empty where no object waits.
  std::optional<T> take() {
    if (idle_.empty())
      return std::nullopt;
    auto out = std::move(idle_.back().what);
    idle_.pop_back();
    return out;
  }

  /// The object that has waited longest, if there are more than `kept` and it has waited for `patience`. Call it until
  /// it returns none.
  std::optional<T> take_expired(timestamp now) {
    if (idle_.size() <= kept_ || now - idle_.front().since < patience_)
      return std::nullopt;
    auto out = std::move(idle_.front().what);
    idle_.pop_front();
    return out;
  }

  std::size_t size() const noexcept { return idle_.size(); }
  void clear() { idle_.clear(); }

private:
  struct entry {
    T what;
    timestamp since;
  };

  std::size_t kept_;
  duration patience_;
  std::deque<entry> idle_;
};

} // namespace troupe::cluster
