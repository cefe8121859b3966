#pragma once

#include "gpu/cuda/page_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// What the kernels that move pages have in common: the parameters of a launch, where tiles lie in tensors, sums.
/// Included by CUDA sources only; thread blocks have `block_threads` threads, and the second index of a grid is the
/// page.

namespace troupe::cuda {

inline constexpr unsigned warp_lanes = 32;
inline constexpr unsigned block_warps = 8;
inline constexpr unsigned block_threads = warp_lanes * block_warps;
inline constexpr unsigned null_block_id = ~0U;

/// A launch, passed as the parameter of a kernel.
template <std::size_t Pages, std::size_t Blocks>
struct launch_of {
  device_plan plan;
  page_progress* progress;
  io::page_checksum* sums;
  std::uint32_t* verdicts;
  /// The number of tiles that one thread block moves.
  std::uint32_t block_tiles;
  page_job jobs[Pages];
  std::uint32_t blocks[Blocks];
};
using tiny_launch = launch_of<8, 16>;
using small_launch = launch_of<48, 96>;
using medium_launch = launch_of<160, 320>;
using large_launch = launch_of<launch::most_pages, launch::most_blocks>;
static_assert(sizeof(large_launch) <= 32764, "the limit for kernel parameters on devices since sm_70");

__device__ inline io::page_checksum checksum_of(const uint4& word, unsigned index) {
  return io::checksum_of_word(index, word.x | static_cast<std::uint64_t>(word.y) << 32U,
                              word.z | static_cast<std::uint64_t>(word.w) << 32U);
}

/// Adds up the sums of the threads of this block; the total is the first thread's. Returns whether this is that thread.
__device__ inline bool sum_in_block(io::page_checksum& sum) {
  __shared__ io::page_checksum of_warp[block_warps];
  for (unsigned distance = warp_lanes / 2; distance > 0; distance /= 2) {
    sum.low += __shfl_down_sync(~0U, sum.low, distance);
    sum.high += __shfl_down_sync(~0U, sum.high, distance);
  }
  if (threadIdx.x % warp_lanes == 0)
    of_warp[threadIdx.x / warp_lanes] = sum;
  __syncthreads();
  if (threadIdx.x != 0)
    return false;
  for (unsigned i = 1; i < block_warps; ++i)
    sum += of_warp[i];
  return true;
}

/// Called by one thread of each block.
__device__ inline void add_sum(page_progress& progress, const io::page_checksum& sum) {
  atomicAdd(&progress.low, static_cast<unsigned long long>(sum.low));
  atomicAdd(&progress.high, static_cast<unsigned long long>(sum.high));
}

/// The sum of the page, which is reset.
__device__ inline io::page_checksum take_sum(page_progress& progress) {
  return {atomicExch(&progress.low, 0ULL), atomicExch(&progress.high, 0ULL)};
}

/// Adds the sums of the threads of this block to the page's progress. Returns true in one thread of the last block of
/// the page, with the sum of the whole page; it then resets the progress.
__device__ inline bool sum_up(page_progress& progress, unsigned parts, io::page_checksum& sum) {
  if (!sum_in_block(sum))
    return false;
  add_sum(progress, sum);
  __threadfence();
  if (atomicAdd(&progress.done, 1U) + 1 != parts)
    return false;
  __threadfence();
  sum = take_sum(progress);
  progress.done = 0;
  return true;
}

/// Waits until the writes of the previous kernel in the stream are visible.
__device__ inline void wait_for_check() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// The offset in the tensor of word `w` of a tile.
__device__ inline std::uint64_t tensor_offset(const layer_plan& layer, const tile& t, unsigned w) {
  const auto in_runs = t.run_word + w;
  const auto run = layer.run_words.divide(in_runs);
  return t.offset + run * layer.token_stride + std::uint64_t{in_runs - run * layer.run_words.value()} * 16;
}

/// Loads the words of a tile that a lane moves: zeroes behind the end of the tile, and where the block does not exist.
__device__ inline void load_tile(const layer_plan& layer, const tile& t, std::uint32_t block,
                                 uint4 (&words)[lane_words]) {
  const auto begin = layer.base + block * layer.block_stride;
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto w = threadIdx.x % warp_lanes + i * warp_lanes;
    words[i] = make_uint4(0, 0, 0, 0);
    if (w < t.words && block != null_block_id)
      words[i] = __ldcs(reinterpret_cast<const uint4*>(begin + tensor_offset(layer, t, w)));
  }
}

/// Stores them, in a block that exists.
__device__ inline void store_tile(const layer_plan& layer, const tile& t, std::uint32_t block,
                                  const uint4 (&words)[lane_words]) {
  const auto begin = layer.base + block * layer.block_stride;
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto w = threadIdx.x % warp_lanes + i * warp_lanes;
    if (w < t.words)
      __stcs(reinterpret_cast<uint4*>(begin + tensor_offset(layer, t, w)), words[i]);
  }
}

inline unsigned blocks_for(std::uint64_t things, std::uint64_t a_block) {
  return static_cast<unsigned>((things + a_block - 1) / a_block);
}

/// The number of tiles per thread block: enough to make the checksum's reduction cheap, but no fewer blocks than keep
/// the device busy.
inline std::uint32_t tiles_a_block(const launch& what) {
  constexpr std::uint64_t blocks_wanted = 2048;
  constexpr std::uint32_t most_rounds = 8;
  const auto rounds = std::uint64_t{what.plan.tile_count} * what.pages / (blocks_wanted * block_warps);
  return block_warps * std::clamp(static_cast<std::uint32_t>(rounds), 1U, most_rounds);
}

template <class Launch>
void fill(Launch& out, const launch& what) {
  out.plan = what.plan;
  out.progress = what.progress;
  out.sums = what.sums;
  out.verdicts = what.verdicts;
  out.block_tiles = tiles_a_block(what);
  std::copy_n(what.jobs, what.pages, out.jobs);
  std::copy_n(what.blocks, std::size_t{what.pages} * what.plan.blocks_per_page, out.blocks);
}

/// Starts a kernel after a check in the same stream while that check still runs: the kernel itself waits for its end,
/// which hides the cost of the launch.
template <class Launch>
void start_early(void (*kernel)(Launch), const dim3& grid, cudaStream_t stream, const Launch& parameter) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(block_threads);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = parameter.plan.starts_early ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, parameter);
}

template <class Launch>
bool fits(const launch& what) {
  return what.pages <= std::extent_v<decltype(Launch::jobs)> &&
         what.pages * what.plan.blocks_per_page <= std::extent_v<decltype(Launch::blocks)>;
}

/// Calls `with` with a parameter of the smallest kind that has room for the launch, as its template argument: the
/// processor copies parameters twice.
template <class With>
cudaError_t with_parameter(const launch& what, const With& with) {
  if (fits<tiny_launch>(what))
    return with.template operator()<tiny_launch>();
  if (fits<small_launch>(what))
    return with.template operator()<small_launch>();
  if (fits<medium_launch>(what))
    return with.template operator()<medium_launch>();
  return with.template operator()<large_launch>();
}

} // namespace troupe::cuda
