#pragma once

#include "base/error.hpp"
#include "base/namespace_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// The arrangement of the bytes of a paged KV cache, as data. A layout is only base pointers and byte strides, so that
/// an engine with its own arrangement needs no new code, and a kernel can use the same numbers.

namespace troupe {

/// One layer's KV cache: the content (head size × element bytes, contiguous) of block b, part p, token t and head h is
/// at `base + b * block_stride + p * part_stride + t * token_stride + h * head_stride`.
///
/// All strides are in bytes. The memory belongs to the engine; a view neither owns nor frees it.
struct tensor_view {
  std::byte* base = nullptr;
  /// Bytes from `base` that may be touched.
  std::uint64_t bytes = 0;
  std::uint64_t block_stride = 0;
  std::uint64_t part_stride = 0;
  std::uint64_t token_stride = 0;
  std::uint64_t head_stride = 0;

  friend bool operator==(const tensor_view&, const tensor_view&) = default;
};

/// The whole paged KV cache of one rank: one tensor per layer, in the order of the model's layers.
///
/// A block of the engine is a block of the geometry, or a part of it: where a page consists of several engine blocks,
/// `blocks_per_page` of them make one page, each with its share of the geometry's `block_tokens`.
struct kv_cache_view {
  kv_geometry geometry;
  /// Blocks in each layer's tensor; block ids are 0 to `blocks` - 1.
  std::uint32_t blocks = 0;
  std::vector<tensor_view> layers;
  std::uint32_t blocks_per_page = 1;
  /// Only whole blocks have a meaning: the geometry gives their size, not their content.
  bool opaque_blocks = false;

  /// Tokens of one engine block.
  std::uint32_t tokens_per_block() const noexcept { return geometry.block_tokens / blocks_per_page; }

  friend bool operator==(const kv_cache_view&, const kv_cache_view&) = default;
};

/// Arrangements that engines use for a layer's tensor. NB blocks, BS tokens per block, H heads, D head size.
enum class kv_layout : std::uint8_t {
  /// (2, NB, BS, H, D): all K, then all V.
  split,
  /// (NB, 2, BS, H, D)
  blocks_first,
  /// (NB, 2, H, BS, D)
  head_major,
  /// (NB, H, BS, 2D): K and V of a token side by side.
  packed,
  /// (NB, BS, D): one latent vector per token, neither parts nor heads.
  mla,
};

std::string_view to_string(kv_layout layout) noexcept;

/// Bytes of each layer's tensor of `blocks` blocks without padding.
result<std::vector<std::uint64_t>> all_layer_bytes(const kv_geometry& geometry, std::uint32_t blocks);

/// The view of tensors that are contiguous in `layout`, one per layer. Checked as by `validate`. Error:
/// `invalid_argument` also where layout and geometry contradict each other (MLA has one part and one head), or blocks
/// and pages do (`blocks_per_page` must divide the tokens of a page).
result<kv_cache_view> make_kv_cache_view(kv_layout layout, const kv_geometry& geometry, std::uint32_t blocks,
                                         std::span<const std::span<std::byte>> tensors,
                                         std::uint32_t blocks_per_page = 1);

/// Checks that every address that a mover computes from the view is inside its tensor (else `out_of_range`), and that
/// no two elements overlap (else `invalid_argument`: a scatter would overwrite one token by another). The arithmetic is
/// checked for overflow: the strides may come from another process.
result<void> validate(const kv_cache_view& view);

} // namespace troupe
