#pragma once

#include "messages/packed.hpp"

#include <cstdint>
#include <string_view>

namespace troupe {

/// The operations that are timed on a node, with one histogram each.
enum class request_kind : std::uint32_t {
  match,
  locate,
  release,
  reserve,
  commit,
  abort,
  invalidate,
  evict,
  /// A fetch whose pages were all in memory.
  read,
  write,
  /// A fetch with at least one page that had to be read from the slab.
  read_disk,
};

inline constexpr std::uint32_t request_kind_count = static_cast<std::uint32_t>(request_kind::read_disk) + 1;

/// The name of the kind in metrics.
constexpr std::string_view to_string(request_kind kind) noexcept {
  switch (kind) {
  case request_kind::match:
    return "match";
  case request_kind::locate:
    return "locate";
  case request_kind::release:
    return "release";
  case request_kind::reserve:
    return "reserve";
  case request_kind::commit:
    return "commit";
  case request_kind::abort:
    return "abort";
  case request_kind::invalidate:
    return "invalidate";
  case request_kind::evict:
    return "evict";
  case request_kind::read:
    return "read";
  case request_kind::write:
    return "write";
  case request_kind::read_disk:
    return "read_disk";
  }
  return "unknown";
}

/// The time of one request inside its actor, and its number of keys or pages.
struct latency_sample {
  std::uint32_t kind = 0;
  std::uint32_t items = 0;
  std::uint64_t nanoseconds = 0;

  friend bool operator==(const latency_sample&, const latency_sample&) = default;
};

/// The most samples in one `latency_batch`; larger batches are refused.
inline constexpr std::size_t latency_samples_max = 1024;

/// Actors collect samples and send them in batches.
struct latency_batch {
  packed<latency_sample> samples;
};

} // namespace troupe
