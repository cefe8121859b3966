#pragma once

#include "base/clock.hpp"
#include "base/identifiers.hpp"
#include "messages/packed.hpp"

#include <cstdint>

/// What is said to the io worker of one slab file.

namespace troupe {

/// Page buffers that the node has lent one client. By `name` the client finds them, see `io::page_buffer_finder`; by
/// `segment` both talk of them.
struct segment_info {
  std::uint64_t segment = 0;
  std::uint64_t bytes = 0;
  packed<std::uint8_t> name{};
};

/// One page to read or write: slab slot ⇄ bytes of the segment. `length` is a multiple of 4096, as is the offset.
struct io_item {
  slot_ref where;
  std::uint64_t buffer_offset = 0;
  std::uint64_t length = 0;

  friend bool operator==(const io_item&, const io_item&) = default;
};

/// Answered when the kernel has finished with every buffer of the batch, not before: after `deadline` what has not
/// ended is cancelled.
struct io_batch {
  std::uint64_t segment = 0;
  duration deadline{};
  packed<io_item> items;
};

/// One code per item, as `errc`.
struct io_reply {
  packed<std::uint8_t> results;
};

struct io_stats {
  std::uint64_t read_pages = 0;
  std::uint64_t written_pages = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t failed = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t fenced = 0;
  std::uint64_t in_flight = 0;
  std::uint64_t segment_bytes = 0;
};

} // namespace troupe
