#pragma once

#include "base/error.hpp"
#include "gpu/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// One block of the KV cache and the page it goes to or comes from.
struct block_move {
  std::uint32_t block = 0;
  /// The page: `page_bytes` contiguous bytes, layer by layer, in each the parts (K, V), in each the tokens, in each
  /// the heads. This order is the same whatever the engine's layout, so that engines with different layouts exchange
  /// pages.
  std::byte* page = nullptr;
  /// Must be the geometry's page size.
  std::uint64_t page_bytes = 0;
  /// Scatter only: the first tokens of the block are not written, because the engine has computed them itself.
  std::uint32_t skip_tokens = 0;
};

/// Moves bytes between the blocks of one paged KV cache and contiguous pages. Bytes are moved, never converted.
///
/// A call covers a whole list of blocks and returns when all bytes have arrived; to wait somewhere else is the
/// business of the copy engine that drives a mover. Every call checks the whole list before it moves the first byte:
/// block outside of the cache → out_of_range; wrong page size, null page, more tokens to skip than there are, or
/// tokens to skip in a gather → invalid_argument. Where a list scatters into one block twice, the later entry wins.
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

  /// Block → page.
  virtual result<void> gather(std::span<const block_move> moves) = 0;

  /// Page → block.
  virtual result<void> scatter(std::span<const block_move> moves) = 0;
};

/// What a gather or scatter refuses, for implementations of `page_mover`.
enum class move_direction : std::uint8_t { gather, scatter };
result<void> validate(const kv_cache_view& cache, std::span<const block_move> moves, move_direction direction);

} // namespace troupe
