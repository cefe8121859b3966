#pragma once

#include "lmcache/wire/operation.hpp"

#include <array>
#include <atomic>
#include <cstdint>

namespace troupe::lmcache {

/// What was asked for by clients of LMCache, and what became of it: for metrics. Whoever likes may read, at any time.
struct counters {
  using number = std::atomic<std::uint64_t>;

  /// By operation.
  std::array<number, wire::operation_count> requests{};
  /// Answered with the operation's way of saying no; those of these that could not be read.
  number refused{0};
  number malformed{0};
  number stored_pages{0};
  number retrieved_pages{0};
  /// By lookups.
  number asked_chunks{0};
  number found_chunks{0};
  /// At present: connections, workers that have registered, requests of engines, and locks of theirs.
  number clients{0};
  number instances{0};
  number sessions{0};
  number locks{0};
  /// Requests whose locks ran out.
  number expired_sessions{0};
};

} // namespace troupe::lmcache
