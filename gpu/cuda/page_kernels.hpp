#pragma once

#include "gpu/cuda/fast_divisor.hpp"
#include "gpu/kv_layout.hpp"
#include "io/page_checksum.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <vector>

/// The kernels that move pages, and the plans they follow. docs/page-mover.md explains both.
///
/// Nothing here waits: every function puts work into a stream.

namespace troupe::cuda {

/// A layer's tensor, as far as all of its tiles share it.
struct layer_plan {
  std::uint64_t base = 0;
  std::uint64_t block_stride = 0;
  std::uint64_t token_stride = 0;
  /// Words of a run: what is contiguous in the tensor as well as in the page.
  fast_divisor run_words;
};

/// Words that one lane of a warp has under way at once, and all lanes.
inline constexpr std::uint32_t lane_words = 4;
inline constexpr std::uint32_t tile_words = 32 * lane_words;

/// What one warp moves: up to `tile_words` words that follow each other in the page, all of one layer, part, head and
/// block.
struct tile {
  /// From the block's begin to the run that the first word belongs to.
  std::uint64_t offset = 0;
  std::uint32_t layer = 0;
  /// Of the first word, in the page and in its run.
  std::uint32_t page_word = 0;
  std::uint32_t run_word = 0;
  std::uint16_t words = 0;
  /// Of the blocks that make up the page.
  std::uint16_t block = 0;
};

/// A layer for the general kernel, which serves what is not made of whole aligned words: everything in bytes.
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

/// How the pages of one cache are moved, as the host computes it once. Either tiles or general layers are there.
struct page_plan {
  std::vector<layer_plan> layers;
  std::vector<tile> tiles;
  std::vector<general_layer> general;
  /// The widest access that all addresses allow: 16 with tiles, else 8, 4, 2 or 1.
  std::uint32_t unit = 16;
  std::uint32_t block_tokens = 0;
  std::uint32_t blocks_per_page = 1;
  std::uint64_t page_bytes = 0;
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
  /// Whether the device can start a kernel before the one in front of it has ended (from sm_90 on).
  bool starts_early = false;
};

/// What one page sums up to while it is computed, and how many thread blocks are through. All zero before and after
/// every launch.
struct page_progress {
  unsigned long long low = 0;
  unsigned long long high = 0;
  unsigned int done = 0;
};

struct page_job {
  /// Where the device reads or writes the page; 16-byte aligned.
  std::byte* page = nullptr;
  /// Scatter only: whether the page has to have the checksum `expected`.
  std::uint32_t checked = 0;
  io::page_checksum expected{};
  /// Fetch only: where the device reads the page in memory of the host; 16-byte aligned.
  const std::byte* source = nullptr;
};

/// Pages of one launch and their blocks: everything a kernel is told, small enough to be passed as its parameter, so
/// that a launch needs no copy of its own.
struct launch {
  static constexpr std::size_t most_pages = 480;
  static constexpr std::size_t most_blocks = 3072;

  device_plan plan;
  std::uint32_t pages = 0;
  /// One per page, in device memory.
  page_progress* progress = nullptr;
  /// One per page, in memory that the host reads: what the pages sum up to.
  io::page_checksum* sums = nullptr;
  /// One per page, in device memory: 0 where a page may be scattered.
  std::uint32_t* verdicts = nullptr;
  /// `pages` of them, and `blocks_per_page` for each, in host memory; used before the call returns.
  const page_job* jobs = nullptr;
  const std::uint32_t* blocks = nullptr;
};

/// Block → page, with the checksum computed on the way into `sums`.
cudaError_t launch_gather(const launch& what, cudaStream_t stream);

/// The checksum of pages in device memory into `sums`, and whether it is the expected one into `verdicts`.
cudaError_t launch_check(const launch& what, cudaStream_t stream);

/// The same for pages in memory of the host, which are copied to device memory on the way.
cudaError_t launch_fetch(const launch& what, cudaStream_t stream);

/// Page → block, of the pages whose verdict is 0.
cudaError_t launch_scatter(const launch& what, cudaStream_t stream);

} // namespace troupe::cuda
