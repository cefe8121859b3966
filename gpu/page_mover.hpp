#pragma once

#include "base/error.hpp"
#include "base/identifiers.hpp"
#include "base/page_encoding.hpp"
#include "codec/page_codec.hpp"
#include "gpu/kv_layout.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace troupe {

/// A page and the block, or blocks, that it is copied from or to.
struct block_move {
  std::uint32_t block = 0;
  /// The page: `page_bytes` contiguous bytes, by layer, then part (K, V), then head, then token. This order does not
  /// depend on the engine's layout, so that engines with different layouts can exchange pages. If the page is encoded,
  /// the first `stored_bytes` of them are the encoding of these bytes, and the others are not used.
  std::byte* page = nullptr;
  /// Must be the geometry's page size.
  std::uint64_t page_bytes = 0;
  /// The blocks after `block`, where a page has several: `blocks_per_page` - 1 of them.
  std::span<const std::uint32_t> further_blocks{};
  /// Gather: is set to the checksum of the page as it is stored, if it is. Scatter: the checksum that the page must
  /// have for its block to be written; if absent, the page is not checked.
  std::optional<io::page_checksum> checksum{};
  /// Gather: bytes before and after the page that may be overwritten with anything. A device moves almost adjacent
  /// pages faster as one piece than as many.
  std::uint64_t spare_before = 0;
  std::uint64_t spare_behind = 0;
  /// Gather: ok, or see `only_encoded`. Scatter: `corrupt` where the page does not have that checksum, or is not an
  /// encoded page at all. Then no byte of its block was written, except by a mover that was made to verify while it
  /// copies (`host_mover_options`).
  errc verdict = errc::ok;
  /// Gather: the encoding that the page is to have; is set to the one that it has, as not all bytes have an encoding.
  /// Scatter: the one that it has.
  page_encoding encoding = page_encoding::raw;
  /// Gather: there is room for the encoded page only, so nothing behind its `stored_bytes` may be written. A page whose
  /// bytes have no encoding, or which the mover does not encode, is not stored, and its verdict is `unsupported`.
  bool only_encoded = false;

  /// The i-th block of the page.
  std::uint32_t block_at(std::size_t i) const noexcept { return i == 0 ? block : further_blocks[i - 1]; }

  /// The bytes of the page as it is stored.
  std::uint64_t stored_bytes() const noexcept { return codec::stored_bytes(encoding, page_bytes); }
};

/// The event that a call waits for on the device, for callers whose KV cache is accessed by streams of their own: a
/// handle of the device's runtime (`cudaEvent_t`) in this process, or null. A mover for host memory refuses it.
struct device_events {
  /// Blocks are accessed only after this event: the engine has written the KV cache, or no longer uses it.
  void* ready = nullptr;
};

enum class move_direction : std::uint8_t { gather, scatter };

/// Copies bytes between the blocks of one paged KV cache and contiguous pages, and computes the pages' checksums at the
/// same time. Bytes of blocks are never changed: encodings are lossless.
///
/// A call takes a list of pages and returns when all bytes have arrived; the copy engine that drives a mover waits on
/// threads of its own. Every call checks the whole list before it moves the first byte: `out_of_range` for a block
/// outside the cache; `invalid_argument` for a wrong page size, a null page, a number of blocks that a page does not
/// have, or an encoding that pages of this size cannot have. If a list scatters into one block twice, one of the
/// entries wins.
///
/// Calls from several threads at once are safe if they use different blocks and pages.
class page_mover {
public:
  page_mover() = default;
  page_mover(const page_mover&) = delete;
  page_mover& operator=(const page_mover&) = delete;
  virtual ~page_mover() = default;

  /// The cache that this mover serves.
  virtual const kv_cache_view& cache() const noexcept = 0;

  /// Registers memory that will contain pages, while the mover lives or until `forget`: a GPU reaches full speed only
  /// with memory that is locked for it, and locking takes time.
  virtual result<void> prepare(std::span<std::byte> memory) = 0;
  /// Whether `prepare` is slow here, so that it should be called before the memory is used.
  virtual bool preparing_takes_time() const noexcept { return false; }
  /// Whether `prepare` would allocate memory that its owner has not allocated yet. Then it is not called ahead of use.
  virtual bool would_allocate(std::span<const std::byte> memory) const noexcept {
    static_cast<void>(memory);
    return false;
  }
  /// Whether a `prepare` delays the other calls of this process to the device, so that pauses have to follow it.
  virtual bool preparing_delays_calls() const noexcept { return true; }
  virtual void forget(std::span<std::byte> memory) = 0;

  /// Concurrent calls of a direction; more calls wait. The user of the mover should have this number of threads for it:
  /// fewer leave the device idle between calls, more only wait.
  virtual std::uint32_t calls_at_once(move_direction) const noexcept { return 1; }

  /// The error that has made the mover unusable for good, such as a fault of the GPU: every later call fails.
  virtual std::optional<error> failure() const = 0;

  /// Copies blocks to pages.
  result<void> gather(std::span<block_move> moves, const device_events& events = {}) {
    return do_gather(moves, events);
  }

  /// Copies pages to blocks.
  result<void> scatter(std::span<block_move> moves, const device_events& events = {}) {
    return do_scatter(moves, events);
  }

private:
  virtual result<void> do_gather(std::span<block_move> moves, const device_events& events) = 0;
  virtual result<void> do_scatter(std::span<block_move> moves, const device_events& events) = 0;
};

/// The checks of a gather or scatter, for implementations of `page_mover`.
result<void> validate(const kv_cache_view& cache, std::span<const block_move> moves);

} // namespace troupe
