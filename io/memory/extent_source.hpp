#pragma once

#include "base/error.hpp"
#include "base/size_text.hpp"
#include "io/memory/numa.hpp"
#include "io/memory/shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

/// The interface through which ranks use the arena of a node: it is divided into equal extents, each assigned to one
/// rank of one namespace at a time, which returns it. `io::arena_pool` implements it with the memory of a host.

namespace troupe::io {

/// A piece of the arena that is assigned to a rank. Its bytes are allocated, and hold what the previous rank left
/// there.
struct extent {
  std::uint32_t number = 0;
  /// Bytes from the start of the arena.
  std::uint64_t offset = 0;
  /// All extents have the same size.
  std::span<std::byte> bytes;
};

/// What a client needs to find the arena and to map it extent by extent.
struct arena_facts {
  std::uint64_t bytes = 0;
  std::uint64_t extent_bytes = 0;
  shared_memory_name name;

  friend bool operator==(const arena_facts&, const arena_facts&) = default;
};

/// Counts for metrics: `assigned` is at most `ready`, and `ready` at most `extents`.
struct extent_counts {
  std::uint64_t extents = 0;
  std::uint64_t assigned = 0;
  /// Extents whose memory is allocated, for good.
  std::uint64_t ready = 0;
  /// How often the host had no memory for an extent.
  std::uint64_t failed = 0;

  friend bool operator==(const extent_counts&, const extent_counts&) = default;
};

/// Assigns extents. Thread-safe: all I/O workers of a node share one. Its memory keeps its address while it lives.
class extent_source {
public:
  extent_source() = default;
  extent_source(const extent_source&) = delete;
  extent_source& operator=(const extent_source&) = delete;
  virtual ~extent_source() = default;

  /// Assigns an extent exclusively until it is taken back. Does not wait. `wish` is the preferred NUMA node; the extent
  /// is elsewhere if none is free there, or if the placement is unknown.
  ///
  /// Errors: `full` (all are assigned: one has to be returned first), `busy` (memory is not allocated yet: retry in
  /// some milliseconds; where the host has none, this persists).
  virtual result<extent> assign(std::optional<numa_node> wish) = 0;

  /// Assigns an extent on any NUMA node.
  result<extent> assign() { return assign(std::nullopt); }

  /// Makes an extent assignable again: its former rank, and clients that had it pinned, must no longer touch it.
  /// Returns false, and changes nothing, if it is not assigned.
  virtual bool take_back(std::uint32_t number) = 0;

  /// How many can be assigned before one has to be returned, if the host has the memory.
  virtual std::uint32_t available() const = 0;

  virtual extent_counts counts() const = 0;

  /// A sentence that says why the host provides no more memory for now; empty while it does.
  virtual std::string refusal() const { return {}; }

  /// The whole arena, of which only assigned extents may be touched.
  virtual std::span<std::byte> memory() noexcept = 0;

  virtual const arena_facts& info() const noexcept = 0;

  /// The arena's name in /dev/shm, by which other programs find it; empty if it has none.
  virtual std::string shared_name() const { return {}; }
  /// Whether programs find it there. False for good once the name was removed.
  virtual bool shared_name_is_there() const noexcept { return true; }

  /// The existing extent of this number, for the rank that received it from another rank: it stays assigned.
  virtual extent at(std::uint32_t number) {
    const auto bytes = info().extent_bytes;
    return {number, number * bytes, memory().subspan(number * bytes, bytes)};
  }
};

/// The largest extent unless a slot needs a larger one: small enough to be registered with a device in milliseconds,
/// and large enough to be few.
inline constexpr std::uint64_t extent_bytes_max = std::uint64_t{64} << 20U;

/// Extents are multiples of this, the size of a huge page.
inline constexpr std::uint64_t extent_alignment = std::uint64_t{2} << 20U;

/// The least number of extents that an arena should have, so that several ranks can share it.
inline constexpr std::uint64_t extents_wanted = 16;

/// The smallest extent that has room for such a slot.
constexpr std::uint64_t extent_bytes_least(std::uint64_t slot_bytes) noexcept {
  const auto huge_pages = slot_bytes / extent_alignment + (slot_bytes % extent_alignment != 0 ? 1 : 0);
  return huge_pages * extent_alignment;
}

/// The extent size of an arena of `arena_bytes` whose largest slot of any rank has `largest_slot_bytes`: the largest
/// power of two up to `extent_bytes_max` with at least `extents_wanted` extents, but at least that slot, in whole huge
/// pages. Error: `invalid_argument`, naming `memory.bytes`, if the arena has less than two extents: a page that is
/// moved would then find no room.
inline result<std::uint64_t> extent_bytes_for(std::uint64_t arena_bytes, std::uint64_t largest_slot_bytes) {
  auto bytes = extent_bytes_max;
  while (bytes > extent_alignment && bytes * extents_wanted > arena_bytes)
    bytes /= 2;
  if (const auto least = extent_bytes_least(largest_slot_bytes); least > bytes)
    bytes = least;
  if (arena_bytes / 2 < bytes)
    return fail(errc::invalid_argument, "memory.bytes is " + size_text(arena_bytes) +
                                            ", which is less than two extents of " + size_text(bytes) +
                                            ", as slots of " + size_text(largest_slot_bytes) + " need: give at least " +
                                            size_text(2 * bytes));
  return bytes;
}

} // namespace troupe::io
