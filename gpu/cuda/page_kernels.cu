#include "gpu/cuda/page_device_code.hpp"

namespace troupe::cuda {

namespace {

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
    uint4 words[lane_words];
    load_tile(layer, t, block, words);
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
    uint4 words[lane_words];
#pragma unroll
    for (unsigned i = 0; i < lane_words; ++i) {
      const auto w = lane + i * warp_lanes;
      if (w < t.words)
        words[i] = page[t.page_word + w];
    }
    store_tile(layer, t, block, words);
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

enum class verb { gather, check, fetch, scatter };

/// Runs the kernel that accesses tensors in units of the plan.
template <verb Verb, class Launch>
cudaError_t run(const launch& what, cudaStream_t stream) {
  Launch parameter;
  fill(parameter, what);
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

template <verb Verb>
cudaError_t run(const launch& what, cudaStream_t stream) {
  return with_parameter(what, [&]<class Launch>() { return run<Verb, Launch>(what, stream); });
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
