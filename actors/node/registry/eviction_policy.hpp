#pragma once

#include "actors/node/registry/key_index.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

/// Decides in which order keys of one namespace go when room is needed. It knows entries only by their index, and
/// nothing of leases, parents or reservations: it proposes, the key space disposes.
///
/// Each entry is in the policy from `inserted` to `removed`. Batches are in prefix order. Every operation costs the
/// same however many entries there are.
class eviction_policy {
public:
  virtual ~eviction_policy() = default;

  /// These keys got their first page.
  virtual void inserted(std::span<const entry_index> entries) = 0;

  /// These keys were used. An entry may occur twice.
  virtual void touched(std::span<const entry_index> entries) = 0;

  virtual void removed(entry_index entry) = 0;

  /// The entry was proposed and cannot go now: propose all others before it.
  virtual void postponed(entry_index entry) = 0;

  /// Writes the next victims, the first to go first; returns how many. Changes nothing: the caller answers each with
  /// `removed` or `postponed`.
  virtual std::size_t candidates(std::span<entry_index> out) const = 0;

  virtual std::uint64_t size() const noexcept = 0;
  virtual std::uint64_t resident_bytes() const noexcept = 0;
};

} // namespace troupe
