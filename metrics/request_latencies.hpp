#pragma once

#include "messages/metrics_messages.hpp"
#include "metrics/duration_histogram.hpp"

#include <array>

namespace troupe {

/// 1 µs to 4 s in powers of two: wide enough for a registry hop and for a disk that struggles.
using request_histogram = basic_duration_histogram<1'000, 23>;

/// The durations of requests inside a node since its start. One thread counts, any may read.
struct request_latencies {
  std::array<request_histogram, request_kind_count> by_kind;

  const request_histogram& of(request_kind kind) const { return by_kind.at(static_cast<std::size_t>(kind)); }
};

} // namespace troupe
