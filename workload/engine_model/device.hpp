#pragma once

#include "connector/types.hpp"

#include <cstdint>
#include <span>

namespace troupe::engine {

/// What a slot of KV cache holds, as a number: a hash of everything that its KV depends on, which is the request's
/// scope and all tokens up to and including the slot's own.
using content = std::uint64_t;

/// Memory of the engine's paged KV cache on all workers.
class device {
public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  virtual ~device() = default;

  /// The forward pass computes KV: slots of `block` from `first` on.
  virtual void write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                            std::span<const content> contents) = 0;

  /// What a connector has to wait for before it reads what was written so far, or writes over it: an event of the
  /// worker's GPU; null where writing was done when `write_tokens` returned.
  virtual void* written(std::uint32_t /*worker*/) { return nullptr; }

  /// Whether these slots hold what the forward pass relies on.
  virtual bool holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                     std::span<const content> contents) = 0;

  /// What `holds` has denied since the last call counts, or does not: what was computed upon it has been dropped.
  virtual void judge(bool /*counts*/) {}
};

} // namespace troupe::engine
