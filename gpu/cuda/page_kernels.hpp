#pragma once

#include "gpu/cuda/fast_divisor.hpp"
#include "gpu/kv_layout.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <vector>

/// The kernels that move pages, and their plans. docs/page-mover.md explains both.
///
/// No function waits: each puts work into a stream.

namespace troupe::cuda {

/// The properties of a layer's tensor that all of its tiles share.
struct layer_plan {
  std::uint64_t base = 0;
  std::uint64_t block_stride = 0;
  std::uint64_t token_stride = 0;
  /// Words of a run, which is contiguous both in the tensor and in the page.
  fast_divisor run_words;
};

/// The words that one lane of a warp has in flight at once, and those of all lanes.
inline constexpr std::uint32_t lane_words = 4;
inline constexpr std::uint32_t tile_words = 32 * lane_words;

/// The work of one warp: up to `tile_words` consecutive words of the page, all of one layer, part, head and block.
struct tile {
  /// Bytes from the start of the block to the run of the first word.
  std::uint64_t offset = 0;
  std::uint32_t layer = 0;
  /// The index of the first word, in the page and in its run.
  std::uint32_t page_word = 0;
  std::uint32_t run_word = 0;
  std::uint16_t words = 0;
  /// The index among the blocks of the page.
  std::uint16_t block = 0;
};

/// A layer for the general kernel, for data that is not made of whole aligned words: everything in bytes.
struct general_layer {
  std::uint64_t base = 0;
  std::uint64_t block_stride = 0;
  std::uint64_t part_stride = 0;
  std::uint64_t head_stride = 0;
  std::uint64_t token_stride = 0;
  std::uint64_t page_offset = 0;
  std::uint32_t content_bytes = 0;
  std::uint32_t heads = 0;
};

/// How the pages of one cache are moved, computed once by the host. It has either tiles or general layers.
struct page_plan {
  std::vector<layer_plan> layers;
  std::vector<tile> tiles;
  std::vector<general_layer> general;
  /// The widest access that all addresses permit: 16 with tiles, else 8, 4, 2 or 1.
  std::uint32_t unit = 16;
  std::uint32_t block_tokens = 0;
  std::uint32_t blocks_per_page = 1;
  std::uint64_t page_bytes = 0;
  /// Whether each tile is one of the BF16 encoding: then kernels encode as they gather, and scatter as they decode.
  bool codec_tiles = false;
};

/// Errors: `unsupported` for pages of 32 GiB or more and for more than `launch::most_blocks` blocks to a page.
result<page_plan> make_page_plan(const kv_cache_view& view);

/// The plan in the memory of the device.
struct device_plan {
  const layer_plan* layers = nullptr;
  const tile* tiles = nullptr;
  const general_layer* general = nullptr;
  std::uint32_t tile_count = 0;
  std::uint32_t layer_count = 0;
  std::uint32_t unit = 16;
  std::uint32_t block_tokens = 0;
  std::uint32_t blocks_per_page = 1;
  std::uint64_t page_bytes = 0;
  bool codec_tiles = false;
  /// Whether the device can start a kernel before the previous one has ended (from sm_90 on).
  bool starts_early = false;
};

/// The partial checksum of a page in progress, and the number of finished thread blocks. All zero before and after
/// every launch.
struct page_progress {
  unsigned long long low = 0;
  unsigned long long high = 0;
  unsigned int done = 0;
  /// Of a check of encoded pages: whether a part of the page is none that an encoder writes.
  unsigned int unsound = 0;
};

struct page_job {
  /// The page's address for the device; 16-byte aligned.
  std::byte* page = nullptr;
  /// Scatter only: whether the page must have the checksum `expected`.
  std::uint32_t checked = 0;
  io::page_checksum expected{};
  /// Fetch only: the device's address of the page in host memory; 16-byte aligned.
  const std::byte* source = nullptr;
};

/// The pages of one launch and their blocks: all arguments of a kernel, small enough to be passed as its parameter, so
/// that a launch needs no copy of its own.
struct launch {
  static constexpr std::size_t most_pages = 480;
  static constexpr std::size_t most_blocks = 3072;

  device_plan plan;
  std::uint32_t pages = 0;
  /// One per page, in device memory.
  page_progress* progress = nullptr;
  /// The checksums, one per page, in memory that the host reads.
  io::page_checksum* sums = nullptr;
  /// One per page, in device memory: 0 where a page may be scattered.
  std::uint32_t* verdicts = nullptr;
  /// `pages` of them, and `blocks_per_page` for each, in host memory; used before the call returns.
  const page_job* jobs = nullptr;
  const std::uint32_t* blocks = nullptr;
};

/// Gathers blocks into pages, with their checksums into `sums`.
cudaError_t launch_gather(const launch& what, cudaStream_t stream);

/// Computes the checksums of pages in device memory into `sums`, and sets `verdicts` by comparing them with the
/// expected ones.
cudaError_t launch_check(const launch& what, cudaStream_t stream);

/// The same for pages in host memory, which are copied to device memory at the same time.
cudaError_t launch_fetch(const launch& what, cudaStream_t stream);

/// Scatters pages into blocks, where the verdict is 0.
cudaError_t launch_scatter(const launch& what, cudaStream_t stream);

} // namespace troupe::cuda
