#include "gpu/cuda/page_kernels.hpp"

#include <algorithm>
#include <type_traits>

namespace troupe::cuda {

namespace {

constexpr unsigned warp_lanes = 32;
constexpr unsigned block_warps = 8;
constexpr unsigned block_threads = warp_lanes * block_warps;
constexpr unsigned null_block_id = ~0U;

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

__device__ io::page_checksum checksum_of(const uint4& word, unsigned index) {
  return io::checksum_of_word(index, word.x | static_cast<std::uint64_t>(word.y) << 32U,
                              word.z | static_cast<std::uint64_t>(word.w) << 32U);
}

/// Adds the sums of the threads of this block to the page's progress. Returns true in one thread of the last block of
/// the page, with the sum of the whole page; it then resets the progress.
__device__ bool sum_up(page_progress& progress, unsigned parts, io::page_checksum& sum) {
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
  atomicAdd(&progress.low, static_cast<unsigned long long>(sum.low));
  atomicAdd(&progress.high, static_cast<unsigned long long>(sum.high));
  __threadfence();
  if (atomicAdd(&progress.done, 1U) + 1 != parts)
    return false;
  __threadfence();
  sum = {atomicExch(&progress.low, 0ULL), atomicExch(&progress.high, 0ULL)};
  progress.done = 0;
  return true;
}

/// Waits until the writes of the previous kernel in the stream are visible.
__device__ void wait_for_check() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// The offset in the tensor of word `w` of a tile.
__device__ std::uint64_t tensor_offset(const layer_plan& layer, const tile& t, unsigned w) {
  const auto in_runs = t.run_word + w;
  const auto run = layer.run_words.divide(in_runs);
  return t.offset + run * layer.token_stride + std::uint64_t{in_runs - run * layer.run_words.value()} * 16;
}

template <class Launch>
__global__ void __launch_bounds__(block_threads, 4) gather_tiles(const __grid_constant__ Launch what) {
  const auto lane = threadIdx.x % warp_lanes;
  const auto first = blockIdx.x * what.block_tiles;
  const auto end = min(first + what.block_tiles, what.plan.tile_count);
  auto* page = reinterpret_cast<uint4*>(what.jobs[blockIdx.y].page);
  io::page_checksum sum;
  auto which = first + threadIdx.x / warp_lanes;
  tile t;
  layer_plan layer;
  if (which < end) {
    t = what.plan.tiles[which];
    layer = what.plan.layers[t.layer];
  }
  while (which < end) {
    const auto block = what.blocks[blockIdx.y * what.plan.blocks_per_page + t.block];
    const auto begin = layer.base + block * layer.block_stride;
    uint4 words[lane_words];
#pragma unroll
    for (unsigned i = 0; i < lane_words; ++i) {
      const auto w = lane + i * warp_lanes;
      words[i] = make_uint4(0, 0, 0, 0);
      if (w < t.words && block != null_block_id)
        words[i] = __ldcs(reinterpret_cast<const uint4*>(begin + tensor_offset(layer, t, w)));
    }
    const auto page_word = t.page_word;
    const unsigned count = t.words;
    // Loads for the next round are issued before this round waits for its words.
    which += block_warps;
    if (which < end) {
      t = what.plan.tiles[which];
      layer = what.plan.layers[t.layer];
    }
#pragma unroll
    for (unsigned i = 0; i < lane_words; ++i) {
      const auto w = lane + i * warp_lanes;
      if (w < count) {
        page[page_word + w] = words[i];
        sum += checksum_of(words[i], page_word + w);
      }
    }
  }
  if (sum_up(what.progress[blockIdx.y], gridDim.x, sum))
    what.sums[blockIdx.y] = sum;
}

template <class Launch>
__global__ void __launch_bounds__(block_threads, 5) scatter_tiles(const __grid_constant__ Launch what) {
  wait_for_check();
  if (what.verdicts[blockIdx.y] != 0)
    return;
  const auto lane = threadIdx.x % warp_lanes;
  const auto first = blockIdx.x * what.block_tiles;
  const auto end = min(first + what.block_tiles, what.plan.tile_count);
  const auto& job = what.jobs[blockIdx.y];
  const auto* page = reinterpret_cast<const uint4*>(job.page);
  for (auto which = first + threadIdx.x / warp_lanes; which < end; which += block_warps) {
    const auto t = what.plan.tiles[which];
    const auto layer = what.plan.layers[t.layer];
    const auto block = what.blocks[blockIdx.y * what.plan.blocks_per_page + t.block];
    if (block == null_block_id)
      continue;
    const auto begin = layer.base + block * layer.block_stride;
    uint4 words[lane_words];
#pragma unroll
    for (unsigned i = 0; i < lane_words; ++i) {
      const auto w = lane + i * warp_lanes;
      if (w < t.words)
        words[i] = page[t.page_word + w];
    }
#pragma unroll
    for (unsigned i = 0; i < lane_words; ++i) {
      const auto w = lane + i * warp_lanes;
      if (w < t.words)
        __stcs(reinterpret_cast<uint4*>(begin + tensor_offset(layer, t, w)), words[i]);
    }
  }
}

/// The position of a byte of the page in the tensors; null where the block does not exist.
template <class Launch>
__device__ std::byte* locate(const Launch& what, std::uint64_t offset) {
  const auto& plan = what.plan;
  unsigned low = 0;
  for (unsigned high = plan.layer_count; high - low > 1;) {
    const auto middle = (low + high) / 2;
    (plan.general[middle].page_offset <= offset ? low : high) = middle;
  }
  const auto& layer = plan.general[low];
  const auto in_layer = offset - layer.page_offset;
  auto index = in_layer / layer.content_bytes;
  const auto in_content = in_layer - index * layer.content_bytes;
  const auto take = [&](unsigned count) {
    const auto digit = static_cast<unsigned>(index % count);
    index /= count;
    return digit;
  };
  const auto token_in_block = take(plan.block_tokens);
  const auto block_in_page = take(plan.blocks_per_page);
  const auto head = take(layer.heads);
  const auto block = what.blocks[blockIdx.y * plan.blocks_per_page + block_in_page];
  if (block == null_block_id)
    return nullptr;
  return reinterpret_cast<std::byte*>(layer.base + block * layer.block_stride + index * layer.part_stride +
                                      head * layer.head_stride + token_in_block * layer.token_stride + in_content);
}

/// A word of the page, cut at the end of the page, in units of `Unit`.
template <class Unit>
struct units {
  static constexpr unsigned count = 16 / sizeof(Unit);
  union {
    uint4 word;
    Unit unit[count];
  };
};

template <class Unit, class Launch>
__global__ void __launch_bounds__(block_threads) gather_units(const __grid_constant__ Launch what) {
  const auto& job = what.jobs[blockIdx.y];
  const auto w = std::uint64_t{blockIdx.x} * block_threads + threadIdx.x;
  io::page_checksum sum;
  if (w * 16 < what.plan.page_bytes) {
    units<Unit> x;
    x.word = make_uint4(0, 0, 0, 0);
    for (unsigned i = 0; i < units<Unit>::count; ++i) {
      const auto offset = w * 16 + i * sizeof(Unit);
      if (offset < what.plan.page_bytes)
        if (const auto* from = locate(what, offset); from != nullptr)
          x.unit[i] = *reinterpret_cast<const Unit*>(from);
    }
    reinterpret_cast<uint4*>(job.page)[w] = x.word;
    sum = checksum_of(x.word, static_cast<unsigned>(w));
  }
  if (sum_up(what.progress[blockIdx.y], gridDim.x, sum))
    what.sums[blockIdx.y] = sum;
}

template <class Unit, class Launch>
__global__ void __launch_bounds__(block_threads) scatter_units(const __grid_constant__ Launch what) {
  wait_for_check();
  if (what.verdicts[blockIdx.y] != 0)
    return;
  const auto& job = what.jobs[blockIdx.y];
  const auto w = std::uint64_t{blockIdx.x} * block_threads + threadIdx.x;
  if (w * 16 >= what.plan.page_bytes)
    return;
  units<Unit> x;
  x.word = reinterpret_cast<const uint4*>(job.page)[w];
  for (unsigned i = 0; i < units<Unit>::count; ++i) {
    const auto offset = w * 16 + i * sizeof(Unit);
    if (offset < what.plan.page_bytes)
      if (auto* to = locate(what, offset); to != nullptr)
        *reinterpret_cast<Unit*>(to) = x.unit[i];
  }
}

/// With `Fetch`, pages are read from host memory and copied.
template <bool Fetch, class Launch>
__global__ void __launch_bounds__(block_threads) check_pages(const __grid_constant__ Launch what) {
  const auto& job = what.jobs[blockIdx.y];
  if (!Fetch && job.checked == 0) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
      what.verdicts[blockIdx.y] = 0;
    return;
  }
  const auto words = (what.plan.page_bytes + 15) / 16;
  const auto rest = static_cast<unsigned>(what.plan.page_bytes % 16);
  const auto* page = reinterpret_cast<const uint4*>(Fetch ? job.source : job.page);
  const auto first = std::uint64_t{blockIdx.x} * block_threads * lane_words + threadIdx.x;
  uint4 x[lane_words];
  io::page_checksum sum;
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i)
    if (const auto w = first + i * block_threads; w < words)
      x[i] = page[w];
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto w = first + i * block_threads;
    if (w >= words)
      continue;
    if constexpr (Fetch)
      reinterpret_cast<uint4*>(job.page)[w] = x[i];
    // The memory behind the page holds leftovers of an earlier page.
    if (rest != 0 && w == words - 1) {
      units<unsigned char> last;
      last.word = x[i];
      for (unsigned b = rest; b < 16; ++b)
        last.unit[b] = 0;
      x[i] = last.word;
    }
    sum += checksum_of(x[i], static_cast<unsigned>(w));
  }
  if (sum_up(what.progress[blockIdx.y], gridDim.x, sum)) {
    const bool sound = sum.low == job.expected.low && sum.high == job.expected.high;
    what.verdicts[blockIdx.y] = job.checked == 0 || sound ? 0 : 1;
    what.sums[blockIdx.y] = sum;
  }
}

unsigned blocks_for(std::uint64_t things, std::uint64_t a_block) {
  return static_cast<unsigned>((things + a_block - 1) / a_block);
}

/// The number of tiles per thread block: enough to make the checksum's reduction cheap, but no fewer blocks than keep
/// the device busy.
std::uint32_t tiles_a_block(const launch& what) {
  constexpr std::uint64_t blocks_wanted = 2048;
  constexpr std::uint32_t most_rounds = 8;
  const auto rounds = std::uint64_t{what.plan.tile_count} * what.pages / (blocks_wanted * block_warps);
  return block_warps * std::clamp(static_cast<std::uint32_t>(rounds), 1U, most_rounds);
}

template <class Launch>
Launch parameter_of(const launch& what) {
  Launch out;
  out.plan = what.plan;
  out.progress = what.progress;
  out.sums = what.sums;
  out.verdicts = what.verdicts;
  out.block_tiles = tiles_a_block(what);
  std::copy_n(what.jobs, what.pages, out.jobs);
  std::copy_n(what.blocks, std::size_t{what.pages} * what.plan.blocks_per_page, out.blocks);
  return out;
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

enum class verb { gather, check, fetch, scatter };

/// Runs the kernel that accesses tensors in units of the plan.
template <verb Verb, class Launch>
cudaError_t run(const launch& what, cudaStream_t stream) {
  const auto parameter = parameter_of<Launch>(what);
  const dim3 threads(block_threads);
  const dim3 tiles(blocks_for(what.plan.tile_count, parameter.block_tiles), what.pages);
  const auto page_words = (what.plan.page_bytes + 15) / 16;
  const dim3 words(blocks_for(page_words, block_threads), what.pages);
  if constexpr (Verb == verb::check || Verb == verb::fetch) {
    const dim3 pieces(blocks_for(page_words, std::uint64_t{block_threads} * lane_words), what.pages);
    check_pages<Verb == verb::fetch><<<pieces, threads, 0, stream>>>(parameter);
  } else {
    constexpr bool gather = Verb == verb::gather;
    const auto start = [&](const dim3& grid, auto gather_kernel, auto scatter_kernel) {
      if constexpr (gather)
        gather_kernel<<<grid, threads, 0, stream>>>(parameter);
      else
        start_early(scatter_kernel, grid, stream, parameter);
    };
    switch (what.plan.unit) {
    case 16:
      start(tiles, gather_tiles<Launch>, scatter_tiles<Launch>);
      break;
    case 8:
      start(words, gather_units<std::uint64_t, Launch>, scatter_units<std::uint64_t, Launch>);
      break;
    case 4:
      start(words, gather_units<std::uint32_t, Launch>, scatter_units<std::uint32_t, Launch>);
      break;
    case 2:
      start(words, gather_units<std::uint16_t, Launch>, scatter_units<std::uint16_t, Launch>);
      break;
    default:
      start(words, gather_units<std::uint8_t, Launch>, scatter_units<std::uint8_t, Launch>);
      break;
    }
  }
  return cudaGetLastError();
}

template <class Launch>
bool fits(const launch& what) {
  return what.pages <= std::extent_v<decltype(Launch::jobs)> &&
         what.pages * what.plan.blocks_per_page <= std::extent_v<decltype(Launch::blocks)>;
}

template <verb Verb>
cudaError_t run(const launch& what, cudaStream_t stream) {
  if (fits<tiny_launch>(what))
    return run<Verb, tiny_launch>(what, stream);
  if (fits<small_launch>(what))
    return run<Verb, small_launch>(what, stream);
  if (fits<medium_launch>(what))
    return run<Verb, medium_launch>(what, stream);
  return run<Verb, large_launch>(what, stream);
}

} // namespace

cudaError_t launch_gather(const launch& what, cudaStream_t stream) {
  return run<verb::gather>(what, stream);
}

cudaError_t launch_check(const launch& what, cudaStream_t stream) {
  return run<verb::check>(what, stream);
}

cudaError_t launch_fetch(const launch& what, cudaStream_t stream) {
  return run<verb::fetch>(what, stream);
}

cudaError_t launch_scatter(const launch& what, cudaStream_t stream) {
  return run<verb::scatter>(what, stream);
}

} // namespace troupe::cuda
