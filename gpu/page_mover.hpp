#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "gpu/kv_layout.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace troupe {

/// A page and the block, or blocks, it goes to or comes from.
struct block_move {
  std::uint32_t block = 0;
  /// The page: `page_bytes` contiguous bytes, layer by layer, in each the parts (K, V), in each the heads, in each the
  /// tokens. This order is the same whatever the engine's layout, so that engines with different layouts exchange
  /// pages.
  std::byte* page = nullptr;
  /// Must be the geometry's page size.
  std::uint64_t page_bytes = 0;
  /// The blocks behind `block`, where a page is made of several: `blocks_per_page` - 1 of them.
  std::span<const std::uint32_t> further_blocks{};
  /// Gather: set to the checksum of the page. Scatter: what the page must have for its block to be written; if absent,
  /// the page is not checked.
  std::optional<io::page_checksum> checksum{};
  /// Gather: bytes in front of the page and behind it that may be overwritten with anything. A device moves pages that
  /// nearly follow each other faster as one piece than as many.
  std::uint64_t spare_before = 0;
  std::uint64_t spare_behind = 0;
  /// Scatter: `corrupt` where the page does not have that checksum. Then no byte of its block was written.
  errc verdict = errc::ok;

  /// The i-th block of the page.
  std::uint32_t block_at(std::size_t i) const noexcept { return i == 0 ? block : further_blocks[i - 1]; }
};

/// What a call waits for on the device, for callers whose KV cache is written and read by streams of their own: a
/// handle of the device's runtime (`cudaEvent_t`) in this process, or null. A mover for host memory refuses it.
struct device_events {
  /// Not before this has happened are blocks read or written: the engine has written the KV cache, or is done with it.
  void* ready = nullptr;
};

enum class move_direction : std::uint8_t { gather, scatter };

/// Moves bytes between the blocks of one paged KV cache and contiguous pages, and computes the pages' checksums on the
/// way. Bytes are moved, never converted.
///
/// A call covers a whole list of pages and returns when all bytes have arrived; to wait somewhere else is the
/// business of the copy engine that drives a mover. Every call checks the whole list before it moves the first byte:
/// block outside of the cache → out_of_range; wrong page size, null page, or another number of blocks than a page has →
/// invalid_argument. Where a list scatters into one block twice, one of the entries wins.
///
/// Calls from several threads at once are safe as long as they do not touch the same blocks or pages.
class page_mover {
public:
  page_mover() = default;
  page_mover(const page_mover&) = delete;
  page_mover& operator=(const page_mover&) = delete;
  virtual ~page_mover() = default;

  /// The cache this mover serves.
  virtual const kv_cache_view& cache() const noexcept = 0;

  /// Memory that pages will lie in, for as long as the mover lives or until `forget`: a GPU moves bytes at full speed
  /// only to and from memory that is locked for it, and locking takes time.
  virtual result<void> prepare(std::span<std::byte> memory) = 0;
  /// Whether it does here, so that it is worth while to do it before the memory is used.
  virtual bool preparing_takes_time() const noexcept { return false; }
  virtual void forget(std::span<std::byte> memory) = 0;

  /// Calls of a direction that are carried out at once; more wait. Whoever drives the mover takes this number of
  /// threads for it: fewer leave the device idle between calls, more only wait.
  virtual std::uint32_t calls_at_once(move_direction) const noexcept { return 1; }

  /// What has made the mover unusable for good, such as a fault of the GPU: every call fails from then on.
  virtual std::optional<error> failure() const = 0;

  /// Block → page.
  result<void> gather(std::span<block_move> moves, const device_events& events = {}) {
    return do_gather(moves, events);
  }

  /// Page → block.
  result<void> scatter(std::span<block_move> moves, const device_events& events = {}) {
    return do_scatter(moves, events);
  }

private:
  virtual result<void> do_gather(std::span<block_move> moves, const device_events& events) = 0;
  virtual result<void> do_scatter(std::span<block_move> moves, const device_events& events) = 0;
};

/// What a gather or scatter refuses, for implementations of `page_mover`.
result<void> validate(const kv_cache_view& cache, std::span<const block_move> moves);

} // namespace troupe
