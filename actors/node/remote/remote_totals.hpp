#pragma once

#include "actors/node/remote/remote_state.hpp"
#include "messages/node_messages.hpp"

#include <atomic>
#include <cstdint>

namespace troupe {

/// The sum of what all remote workers of a node have moved, including those that have ended. Thread-safe; the numbers
/// are read one by one, so they need not belong to the same moment.
class remote_totals {
public:
  void add(const remote_counts& x) noexcept {
    put_pages_ += x.put_pages;
    got_pages_ += x.got_pages;
    put_bytes_ += x.put_bytes;
    got_bytes_ += x.got_bytes;
    put_failures_ += x.put_failures;
    got_failures_ += x.got_failures;
    lost_ += x.lost;
  }
  remote_stats sum() const noexcept {
    return {put_pages_, got_pages_, put_bytes_, got_bytes_, put_failures_, got_failures_, lost_};
  }

private:
  using number = std::atomic<std::uint64_t>;
  number put_pages_{0};
  number got_pages_{0};
  number put_bytes_{0};
  number got_bytes_{0};
  number put_failures_{0};
  number got_failures_{0};
  number lost_{0};
};

} // namespace troupe
