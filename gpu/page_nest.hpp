#pragma once

#include "gpu/kv_layout.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// One layer's part of a page as runs of bytes in the layer's tensor, for movers to iterate over. In the page the runs
/// are contiguous: for each part, for each head, for each block of the page, for each token run.
///
/// Adjacent runs are merged: where the tokens of a head are contiguous in memory a run holds all tokens of a block,
/// where the heads are as well it holds all heads, and so on.
struct page_nest {
  struct loop {
    std::uint32_t count = 1;
    std::uint64_t stride = 0;
  };

  /// The start of block 0.
  std::byte* base = nullptr;
  std::uint64_t block_stride = 0;
  /// The offset of the layer in a page, and its bytes there.
  std::uint64_t page_offset = 0;
  std::uint64_t page_bytes = 0;
  /// Bytes of one head of one token.
  std::uint64_t content_bytes = 0;
  /// Contiguous both in the tensor and in the page.
  std::uint64_t run_bytes = 0;
  loop part;
  loop head;
  /// Runs of one block and head: its tokens, or 1 where they are merged.
  loop token;
};

/// The nests of all layers of a valid view, in the order of the page. Without merging, a run is one head of one token
/// in every layer.
std::vector<page_nest> page_nests(const kv_cache_view& view, bool merge);

} // namespace troupe
