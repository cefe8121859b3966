#pragma once

#include "base/clock.hpp"
#include "messages/metrics_messages.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe {

/// A buffer of request times of one actor, until they are sent to the metrics actor. Not thread-safe.
class latency_collector {
public:
  /// Adds one time; a full collector drops it.
  void add(request_kind kind, std::size_t items, duration time) {
    if (!full())
      samples_.samples.items.push_back({static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(items),
                                        static_cast<std::uint64_t>(time.count())});
  }

  bool empty() const noexcept { return samples_.samples.empty(); }
  /// Whether the buffer has as many samples as one message may carry.
  bool full() const noexcept { return samples_.samples.size() >= latency_samples_max; }
  latency_batch take() { return std::exchange(samples_, {}); }

private:
  latency_batch samples_;
};

} // namespace troupe
