#pragma once

#include "base/error.hpp"
#include "base/size_text.hpp"
#include "io/numa.hpp"
#include "io/shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

/// The arena of a node, as far as those see it who keep pages in it: it is lent in equal pieces, extents, one at a time
/// to one rank of one namespace, which hands them back. `io::arena_pool` lends the memory of a host.

namespace troupe::io {

/// A piece of the arena that is lent. Its bytes are there, and hold whatever the borrower before left in them.
struct extent {
  std::uint32_t number = 0;
  /// From the start of the arena.
  std::uint64_t offset = 0;
  /// As many as every other extent has.
  std::span<std::byte> bytes;
};

/// What a client needs to find the arena, and to treat it piece by piece.
struct arena_facts {
  std::uint64_t bytes = 0;
  std::uint64_t extent_bytes = 0;
  shared_memory_name name;

  friend bool operator==(const arena_facts&, const arena_facts&) = default;
};

/// For metrics: `lent` is at most `ready`, and that at most `extents`.
struct extent_counts {
  std::uint64_t extents = 0;
  std::uint64_t lent = 0;
  /// Those whose memory the host has given, for good.
  std::uint64_t ready = 0;
  /// How often the host had no memory for one.
  std::uint64_t failed = 0;

  friend bool operator==(const extent_counts&, const extent_counts&) = default;
};

/// Lends extents. Thread-safe: all io workers of a node share one. Its memory stays where it is as long as it lives.
class extent_source {
public:
  extent_source() = default;
  extent_source(const extent_source&) = delete;
  extent_source& operator=(const extent_source&) = delete;
  virtual ~extent_source() = default;

  /// An extent that is nobody else's until it is taken back. Waits for nothing. `wish`: the NUMA node on which it had
  /// better lie; it lies elsewhere if none is left there, or if it is not known where extents lie.
  ///
  /// Errors: `full` (all are lent: one has to come back first), `busy` (the host has not given its memory yet: ask
  /// again in some milliseconds; where it has none to give, that lasts).
  virtual result<extent> lend(std::optional<numa_node> wish) = 0;

  /// Wherever it lies.
  result<extent> lend() { return lend(std::nullopt); }

  /// From now on it may be lent again: nobody may touch it who had it, and nobody for whom it was pinned.
  /// False, and nothing has changed, if it is not lent.
  virtual bool take_back(std::uint32_t number) = 0;

  /// How many can be lent before one has to come back, if the host has the memory.
  virtual std::uint32_t available() const = 0;

  virtual extent_counts counts() const = 0;

  /// Why the host gives no more memory for now, a sentence; empty as long as it gives what is asked for.
  virtual std::string refusal() const { return {}; }

  /// All of it, of which only what is lent may be touched.
  virtual std::span<std::byte> memory() noexcept = 0;

  virtual const arena_facts& info() const noexcept = 0;

  /// The arena's name in /dev/shm, for programs that find it by that; empty if it has none.
  virtual std::string shared_name() const { return {}; }
  /// Whether they find it there. False for good once somebody has removed the name.
  virtual bool shared_name_is_there() const noexcept { return true; }

  /// The extent of this number, which there must be, for who got it from another borrower: it is lent as before.
  virtual extent at(std::uint32_t number) {
    const auto bytes = info().extent_bytes;
    return {number, number * bytes, memory().subspan(number * bytes, bytes)};
  }
};

/// The largest extent where nothing else asks for a larger one: little enough to be registered with a device in
/// milliseconds, and much enough to be few.
inline constexpr std::uint64_t extent_bytes_max = std::uint64_t{64} << 20U;

/// Extents are multiples of this, a huge page.
inline constexpr std::uint64_t extent_alignment = std::uint64_t{2} << 20U;

/// So many extents an arena should have at least, so that several ranks can share it.
inline constexpr std::uint64_t extents_wanted = 16;

/// The smallest extent that has room for such a slot.
constexpr std::uint64_t extent_bytes_least(std::uint64_t slot_bytes) noexcept {
  const auto huge_pages = slot_bytes / extent_alignment + (slot_bytes % extent_alignment != 0 ? 1 : 0);
  return huge_pages * extent_alignment;
}

/// What an arena of so many bytes is lent in, where the largest slot of any rank has so many: the largest power of two
/// up to `extent_bytes_max` of which it has `extents_wanted`, but at least that slot, in whole huge pages.
/// `invalid_argument`, naming `memory.bytes`, if the arena has not even two of them: then a page that is moved would
/// find no place.
inline result<std::uint64_t> extent_bytes_for(std::uint64_t arena_bytes, std::uint64_t largest_slot_bytes) {
  auto bytes = extent_bytes_max;
  while (bytes > extent_alignment && bytes * extents_wanted > arena_bytes)
    bytes /= 2;
  if (const auto least = extent_bytes_least(largest_slot_bytes); least > bytes)
    bytes = least;
  if (arena_bytes / 2 < bytes)
    return fail(errc::invalid_argument,
                "memory.bytes is " + size_text(arena_bytes) + ", which is not even two extents of " + size_text(bytes) +
                    ", as slots of " + size_text(largest_slot_bytes) + " need: give at least " + size_text(2 * bytes));
  return bytes;
}

} // namespace troupe::io
