#include "actors/cluster/pages/staging_buffer.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cluster {

staging_buffer::staging_buffer(const kv_geometry& geometry, std::uint32_t blocks)
    : bytes_(new std::byte[geometry.page_bytes() * blocks]) {
  const auto page_bytes = geometry.page_bytes();
  view_.geometry = geometry;
  view_.blocks = blocks;
  std::uint64_t at = 0;
  for (const auto& shape : geometry.shapes()) {
    tensor_view layer;
    layer.token_stride = shape.content_bytes();
    layer.head_stride = layer.token_stride * geometry.block_tokens;
    layer.part_stride = layer.head_stride * shape.heads;
    const auto layer_bytes = layer.part_stride * shape.parts;
    layer.block_stride = page_bytes;
    layer.base = bytes_.get() + at;
    layer.bytes = (blocks - 1) * page_bytes + layer_bytes;
    view_.layers.push_back(layer);
    at += layer_bytes;
  }
}

void staging_buffer::redirect(std::uint32_t block, std::shared_ptr<target_frame> to) {
  const std::lock_guard guard(mutex_);
  if (to)
    targets_[block] = std::move(to);
  else
    targets_.erase(block);
}

std::shared_ptr<target_frame> staging_buffer::target(std::uint32_t block) const {
  const std::lock_guard guard(mutex_);
  const auto found = targets_.find(block);
  return found == targets_.end() ? nullptr : found->second;
}

std::uint32_t staging_blocks(std::uint64_t bytes, std::uint64_t page_bytes) noexcept {
  constexpr std::uint64_t most = 65536;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(bytes / std::max<std::uint64_t>(page_bytes, 1), 4, most));
}

} // namespace troupe::cluster
