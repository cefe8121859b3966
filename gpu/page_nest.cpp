#include "gpu/page_nest.hpp"

namespace troupe {

namespace {

/// Merges a loop into the run if its steps are contiguous with the run.
bool absorb(page_nest& nest, page_nest::loop& loop) {
  if (loop.count != 1 && loop.stride != nest.run_bytes)
    return false;
  nest.run_bytes *= loop.count;
  loop = {};
  return true;
}

} // namespace

std::vector<page_nest> page_nests(const kv_cache_view& view, bool merge) {
  std::vector<page_nest> nests;
  nests.reserve(view.layers.size());
  const auto shapes = view.geometry.shapes();
  std::uint64_t page_offset = 0;
  for (std::size_t layer = 0; layer < view.layers.size(); ++layer) {
    const auto& shape = shapes[layer];
    const auto& tensor = view.layers[layer];
    auto& nest = nests.emplace_back();
    nest.base = tensor.base;
    nest.block_stride = tensor.block_stride;
    nest.page_offset = page_offset;
    nest.page_bytes = shape.token_bytes() * view.geometry.block_tokens;
    nest.content_bytes = shape.content_bytes();
    nest.run_bytes = nest.content_bytes;
    nest.part = {shape.parts, tensor.part_stride};
    nest.head = {shape.heads, tensor.head_stride};
    nest.token = {view.tokens_per_block(), tensor.token_stride};
    page_offset += nest.page_bytes;
    // With several blocks per page, the heads of one block are not contiguous in the page.
    if (merge && absorb(nest, nest.token) && view.blocks_per_page == 1 && absorb(nest, nest.head))
      absorb(nest, nest.part);
  }
  return nests;
}

} // namespace troupe
