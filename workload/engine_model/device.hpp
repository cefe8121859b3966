#pragma once

#include "connector/types.hpp"

#include <cstdint>
#include <span>

namespace troupe::engine {

/// The content of a slot of KV cache as a number: a hash of everything that its KV depends on, which is the request's
/// scope and all tokens up to and including the slot's own.
using content = std::uint64_t;

/// The memory of the engine's paged KV cache on all workers.
class device {
public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  virtual ~device() = default;

  /// Writes the KV that the forward pass computes: slots of `block` from `first` on.
  virtual void write_tokens(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                            std::span<const content> contents) = 0;

  /// The event of the worker's GPU that a connector must wait for before it reads what was written so far, or
  /// overwrites it; null where writing had ended when `write_tokens` returned.
  virtual void* written(std::uint32_t /*worker*/) { return nullptr; }

  /// Whether these slots hold the KV that the forward pass requires.
  virtual bool holds(std::uint32_t worker, connector::block_id block, std::uint32_t first,
                     std::span<const content> contents) = 0;

  /// Whether the mismatches that `holds` found since the last call count; they do not if the dependent output was
  /// dropped.
  virtual void judge(bool /*counts*/) {}
};

} // namespace troupe::engine
