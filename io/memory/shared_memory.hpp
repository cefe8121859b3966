#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

/// Memory in which a node keeps pages and which its clients map: clients copy between it and their devices, the node
/// between it and its slabs. An implementation decides how both reach it: `io::arena` is that of a host.

namespace troupe::io {

/// A mapping of such memory in one process. The bytes keep their address and stay mapped while this object lives.
class shared_memory {
public:
  shared_memory() = default;
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;
  virtual ~shared_memory() = default;

  /// The bytes, aligned to `page_alignment` and a multiple of it. Writes of other processes appear at any time.
  virtual std::span<std::byte> bytes() noexcept = 0;
};

/// The name that a node sends to a client to find its memory. Opaque outside the implementation.
using shared_memory_name = std::vector<std::uint8_t>;

/// The client's end: finds the memory that a node has named.
class shared_memory_finder {
public:
  shared_memory_finder() = default;
  shared_memory_finder(const shared_memory_finder&) = delete;
  shared_memory_finder& operator=(const shared_memory_finder&) = delete;
  virtual ~shared_memory_finder() = default;

  /// Finds the memory of exactly this size with this name. Nothing is written to it before it is verified. Errors:
  /// `unreachable`, `identity_mismatch`, `invalid_argument`, `io_error`.
  virtual result<std::shared_ptr<shared_memory>> find(std::uint64_t bytes, std::span<const std::uint8_t> name) = 0;
};

} // namespace troupe::io
