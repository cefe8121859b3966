#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

/// Memory in which a node keeps pages and which its clients map: they copy between it and their devices, the node
/// between it and its slabs. How both get at it is the business of an implementation: `io::arena` is that of a host.

namespace troupe::io {

/// Such memory as one of the processes sees it. Whoever uses its bytes holds this object: they stay where they are, and
/// there, as long as it lives.
class shared_memory {
public:
  shared_memory() = default;
  shared_memory(const shared_memory&) = delete;
  shared_memory& operator=(const shared_memory&) = delete;
  virtual ~shared_memory() = default;

  /// Aligned to `page_alignment`, a multiple of it. What the other processes write appears at any time.
  virtual std::span<std::byte> bytes() noexcept = 0;
};

/// How a node tells a client where its memory is. Means something to the implementation only.
using shared_memory_name = std::vector<std::uint8_t>;

/// The client's end: finds what a node has told of.
class shared_memory_finder {
public:
  shared_memory_finder() = default;
  shared_memory_finder(const shared_memory_finder&) = delete;
  shared_memory_finder& operator=(const shared_memory_finder&) = delete;
  virtual ~shared_memory_finder() = default;

  /// The memory of exactly this size with this name. Nothing is written to what was found before it has proved to be
  /// that. Errors: `unreachable`, `identity_mismatch`, `invalid_argument`, `io_error`.
  virtual result<std::shared_ptr<shared_memory>> find(std::uint64_t bytes, std::span<const std::uint8_t> name) = 0;
};

} // namespace troupe::io
