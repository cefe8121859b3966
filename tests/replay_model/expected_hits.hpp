#pragma once

#include "workload/replay/trace.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace troupe::test {

/// The hits of a prefix cache of one rank for a trace, request by request.
struct expected_hits {
  std::uint64_t blocks = 0;
  std::uint64_t hit_blocks = 0;
  /// Different keys.
  std::uint64_t unique_blocks = 0;
  std::uint64_t evicted_blocks = 0;

  friend bool operator==(const expected_hits&, const expected_hits&) = default;
};

/// Plays the trace against a plain model: requests in order, one at a time; a request's hits are its leading blocks
/// that are present; then all its blocks become present, in prefix order, each the most recent at its turn, and the
/// least recent ones are evicted until no more than `capacity` are left. Without a capacity nothing is evicted.
///
/// With capacity for all and one request at a time a node must find exactly as many. With less, a node may differ: it
/// does not evict leased blocks, nor a block before those that continue it.
expected_hits expect_hits(std::span<const replay::trace_request> requests, std::optional<std::uint64_t> capacity = {});

} // namespace troupe::test
