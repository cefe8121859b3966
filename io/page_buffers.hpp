#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

/// Where pages lie on their way between a device and a slab. A node makes page buffers and reads and writes slabs
/// through them; a client finds them by what the node says, and copies between them and its device. How the bytes get
/// from the one to the other is the business of an implementation: `io::segment` is memory that both of them map.

namespace troupe::io {

/// Page buffers as one of the two processes sees them. Whoever uses their bytes holds this object: they stay where they
/// are, and there, as long as it lives.
class page_buffers {
public:
  page_buffers() = default;
  page_buffers(const page_buffers&) = delete;
  page_buffers& operator=(const page_buffers&) = delete;
  virtual ~page_buffers() = default;

  /// Aligned to `page_alignment`, a multiple of it. What the other process writes appears at any time.
  virtual std::span<std::byte> bytes() noexcept = 0;
};

/// How a node tells a client where its page buffers are. Means something to the implementation only; told to one
/// client.
using page_buffers_name = std::vector<std::uint8_t>;

/// The node's end: makes page buffers for clients, known to the store that transfers between them and its slots.
class page_buffer_source {
public:
  /// Page buffers of one client.
  struct loan {
    std::shared_ptr<page_buffers> buffers;
    /// What the store knows their bytes by, see `page_store::add_buffer`. Several loans may have the same.
    std::uint32_t at_store = 0;
    page_buffers_name name;
  };

  page_buffer_source() = default;
  page_buffer_source(const page_buffer_source&) = delete;
  page_buffer_source& operator=(const page_buffer_source&) = delete;
  virtual ~page_buffer_source() = default;

  /// At least `bytes`, zeroed and really there: a host short of memory is an error here and not a signal later.
  /// `memory_node`: the NUMA node that they should come from, that of the device which will read and write them, or -1.
  /// Errors: `limit_exceeded`, `invalid_argument`, `io_error`.
  virtual result<loan> lend(std::uint64_t bytes, std::int32_t memory_node) = 0;

  /// The caller guarantees that no transfer in them is under way.
  virtual void take_back(loan what) = 0;
};

/// The client's end: finds what a node has lent.
class page_buffer_finder {
public:
  page_buffer_finder() = default;
  page_buffer_finder(const page_buffer_finder&) = delete;
  page_buffer_finder& operator=(const page_buffer_finder&) = delete;
  virtual ~page_buffer_finder() = default;

  /// The page buffers of exactly this size with this name. Nothing is written to what was found before it has proved to
  /// be those. Errors: `unreachable`, `identity_mismatch`, `invalid_argument`, `io_error`.
  virtual result<std::shared_ptr<page_buffers>> find(std::uint64_t bytes, std::span<const std::uint8_t> name) = 0;
};

} // namespace troupe::io
