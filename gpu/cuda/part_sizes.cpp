#include "gpu/cuda/part_sizes.hpp"

#include "codec/cuda/page_codec_kernels.hpp"
#include "codec/page_codec.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/page_parts.hpp"

#include <algorithm>

namespace troupe::cuda {

part_sizes part_sizes::of(std::uint64_t page_bytes, std::uint32_t blocks_per_page, std::uint64_t part_bytes,
                          bool codec_tiles) noexcept {
  const auto step = staged_bytes(page_bytes);
  part_sizes out;
  out.staging_bytes = std::max(part_bytes, step);
  out.pages = std::min(launch::most_pages, launch::most_blocks / blocks_per_page);
  if (codec::stored_bytes(page_encoding::bf16, page_bytes) != 0)
    out.encoded_pages = std::clamp<std::size_t>(out.staging_bytes / step, 1, out.pages);
  out.encoded_at_once = codec_tiles && out.encoded_pages > 0;
  return out;
}

pipeline_memory pipeline_memory::of(const part_sizes& parts, std::uint64_t page_bytes, move_direction direction,
                                    bool encodes) noexcept {
  pipeline_memory out;
  out.staging_bytes = parts.staging_bytes;
  const bool gathers = direction == move_direction::gather;
  if (parts.encoded_pages == 0 || (gathers && !encodes))
    return out;
  if (!parts.encoded_at_once)
    out.plain_bytes = parts.encoded_pages * staged_bytes(page_bytes);
  if (gathers)
    out.scratch_bytes = codec::cuda::encode_scratch_bytes(page_bytes, static_cast<std::uint32_t>(parts.encoded_pages));
  return out;
}

} // namespace troupe::cuda
