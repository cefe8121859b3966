#include "codec/cuda/tile_device_code.hpp"
#include "gpu/cuda/encoded_page_kernels.hpp"
#include "gpu/cuda/page_device_code.hpp"

namespace troupe::cuda {

namespace {

using codec::cuda::block_memory;
using codec::cuda::scratch_places;
static_assert(codec::cuda::block_threads == block_threads && codec::cuda::lane_words == lane_words);

constexpr unsigned word_bytes = io::checksum_word_bytes;
constexpr unsigned header_words = sizeof(codec::page_header) / word_bytes;

/// A launch for encoded pages, passed as the parameter of a kernel.
template <class Launch>
struct encoded_of : Launch {
  codec::page_layout layout;
  std::byte* staged;
  std::uint64_t staged_stride;
  std::uint32_t* refused;
  scratch_places scratch;
};
static_assert(sizeof(encoded_of<large_launch>) <= 32764, "the limit for kernel parameters on devices since sm_70");

/// Stores halves of words, of which lane l has number l, l + 32, …, as whole words from word `first` of the page on.
/// Returns their checksum.
template <unsigned Count>
__device__ io::page_checksum store_halves(uint4* page, unsigned first, const uint2 (&halves)[Count]) {
  const auto lane = threadIdx.x % warp_lanes;
  const bool odd = lane % 2 != 0;
  io::page_checksum sum;
#pragma unroll
  for (unsigned i = 0; i < Count; i += 2) {
    // Of two words that two neighbours share, each takes one.
    const auto& mine = odd ? halves[i + 1] : halves[i];
    const auto& others = odd ? halves[i] : halves[i + 1];
    const auto got = make_uint2(__shfl_xor_sync(~0U, others.x, 1), __shfl_xor_sync(~0U, others.y, 1));
    const auto word = odd ? make_uint4(got.x, got.y, mine.x, mine.y) : make_uint4(mine.x, mine.y, got.x, got.y);
    const auto at = first + lane / 2 + (odd ? i + 1 : i) * (warp_lanes / 2);
    page[at] = word;
    sum += checksum_of(word, at);
  }
  return sum;
}

/// The word at position `i` among those of a page that belong to no single tile: the header, and what is behind the
/// codes.
__device__ unsigned common_word(const codec::page_layout& layout, unsigned i) {
  return i < header_words ? i : static_cast<unsigned>(layout.records / word_bytes) + i - header_words;
}

__device__ unsigned common_words(const codec::page_layout& layout) {
  return header_words + static_cast<unsigned>((layout.bytes - layout.records) / word_bytes);
}

/// Completes a page whose tiles are encoded, by its last block. The common words are put together in staging memory,
/// wherever the page is.
template <class Launch>
__device__ void close_encoded(const encoded_of<Launch>& what, block_memory& memory) {
  auto* staged = what.staged + blockIdx.y * what.staged_stride;
  const bool fits = codec::cuda::close_page(staged, what.layout, what.plan.page_bytes,
                                            what.scratch.of_page(blockIdx.y, what.layout.tiles), memory);
  __syncthreads();
  auto* page = reinterpret_cast<uint4*>(what.jobs[blockIdx.y].page);
  const auto* from = reinterpret_cast<const uint4*>(staged);
  io::page_checksum sum;
  for (auto i = threadIdx.x; fits && i < common_words(what.layout); i += block_threads) {
    const auto at = common_word(what.layout, i);
    const auto word = from[at];
    if (page != from)
      page[at] = word;
    sum += checksum_of(word, at);
  }
  if (!sum_in_block(sum))
    return;
  sum += take_sum(what.progress[blockIdx.y]);
  what.sums[blockIdx.y] = sum;
  what.refused[blockIdx.y] = fits ? 0 : 1;
}

template <class Launch>
__global__ void __launch_bounds__(block_threads, 3) gather_encoded(const __grid_constant__ encoded_of<Launch> what) {
  __shared__ block_memory memory;
  const auto& layout = what.layout;
  const auto end = min((blockIdx.x + 1) * what.block_tiles, what.plan.tile_count);
  auto* page = reinterpret_cast<uint4*>(what.jobs[blockIdx.y].page);
  const auto in_scratch = blockIdx.y * layout.tiles;
  io::page_checksum sum;
  for (auto which = blockIdx.x * what.block_tiles + threadIdx.x / warp_lanes; which < end; which += block_warps) {
    const auto t = what.plan.tiles[which];
    uint4 words[lane_words];
    load_tile(what.plan.layers[t.layer], t, what.blocks[blockIdx.y * what.plan.blocks_per_page + t.block], words);
    uint2 mantissas[lane_words];
    const auto exponents = codec::cuda::split(words, mantissas);
    sum += store_halves(
        page, static_cast<unsigned>((layout.mantissas + std::uint64_t{which} * codec::tile_elements) / word_bytes),
        mantissas);
    uint2 codes[lane_words / 2];
    const auto choice =
        codec::cuda::encode_exponents(exponents, memory.below[threadIdx.x / warp_lanes],
                                      what.scratch.escapes + (in_scratch + which) * codec::max_tile_escapes, codes);
    sum += store_halves(
        page, static_cast<unsigned>((layout.codes + std::uint64_t{which} * codec::tile_code_bytes) / word_bytes),
        codes);
    if (threadIdx.x % warp_lanes == 0)
      what.scratch.records[in_scratch + which] = codec::record_of(choice.window, choice.escapes);
  }
  auto& progress = what.progress[blockIdx.y];
  if (sum_in_block(sum))
    add_sum(progress, sum);
  if (codec::cuda::is_last_of_page(&progress.done))
    close_encoded(what, memory);
}

/// The number of escapes among the codes of a word.
__device__ unsigned escapes_in(const uint4& codes) {
  unsigned count = 0;
  for (const auto x : {codes.x, codes.y, codes.z, codes.w})
    count += __popc(x & x >> 1U & x >> 2U & x >> 3U & 0x11111111U);
  return count;
}

/// Each warp has a tile, and each thread at most one of the common words. With `Fetch`, pages are read from host memory
/// and copied.
template <bool Fetch, class Launch>
__global__ void __launch_bounds__(block_threads) check_encoded(const __grid_constant__ encoded_of<Launch> what) {
  const auto& layout = what.layout;
  const auto& job = what.jobs[blockIdx.y];
  const auto* from = Fetch ? job.source : job.page;
  const auto* words = reinterpret_cast<const uint4*>(from);
  const auto lane = threadIdx.x % warp_lanes;
  const auto warp = threadIdx.x / warp_lanes;
  const std::uint64_t which = blockIdx.x * block_warps + warp;
  const auto common = blockIdx.x * block_threads + threadIdx.x;
  const bool has_tile = which < layout.tiles;
  const auto mantissas = static_cast<unsigned>((layout.mantissas + which * codec::tile_elements) / word_bytes) + lane;
  const unsigned at[] = {static_cast<unsigned>((layout.codes + which * codec::tile_code_bytes) / word_bytes) + lane,
                         mantissas, mantissas + warp_lanes, common_word(layout, common)};
  const bool has[] = {has_tile, has_tile, has_tile, common < common_words(layout)};
  uint4 x[4];
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    if (has[i])
      x[i] = words[at[i]];
  // The records of the tiles, and the one before them.
  __shared__ std::uint32_t records[block_warps + 1];
  if (const auto i = blockIdx.x * block_warps + threadIdx.x; threadIdx.x <= block_warps && i > 0 && i <= layout.tiles)
    records[threadIdx.x] = reinterpret_cast<const std::uint32_t*>(from + layout.records)[i - 1];
  __syncthreads();
  bool sound = true;
  if (has_tile) {
    const codec::cuda::listed_escapes listed{which == 0 ? 0 : codec::escapes_end_of(records[warp]),
                                             codec::escapes_end_of(records[warp + 1])};
    sound = listed.are_sound(layout) && __reduce_add_sync(~0U, escapes_in(x[0])) == listed.end - listed.begin;
  }
  if (common == 0)
    sound = codec::cuda::is_header_sound(from, layout, what.plan.page_bytes) && sound;
  auto& progress = what.progress[blockIdx.y];
  if (!sound)
    atomicOr(&progress.unsound, 1U);
  io::page_checksum sum;
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)
    if (has[i]) {
      if constexpr (Fetch)
        reinterpret_cast<uint4*>(job.page)[at[i]] = x[i];
      sum += checksum_of(x[i], at[i]);
    }
  if (!sum_up(progress, gridDim.x, sum))
    return;
  const bool refused = atomicExch(&progress.unsound, 0U) != 0;
  const bool expected = job.checked == 0 || (sum.low == job.expected.low && sum.high == job.expected.high);
  what.verdicts[blockIdx.y] = refused || !expected ? 1 : 0;
  what.sums[blockIdx.y] = sum;
  if (refused)
    what.refused[blockIdx.y] = 1;
}

template <class Launch>
__global__ void __launch_bounds__(block_threads, 4) scatter_encoded(const __grid_constant__ encoded_of<Launch> what) {
  wait_for_check();
  if (what.verdicts[blockIdx.y] != 0)
    return;
  const auto end = min((blockIdx.x + 1) * what.block_tiles, what.plan.tile_count);
  for (auto which = blockIdx.x * what.block_tiles + threadIdx.x / warp_lanes; which < end; which += block_warps) {
    const auto t = what.plan.tiles[which];
    const auto block = what.blocks[blockIdx.y * what.plan.blocks_per_page + t.block];
    if (block == null_block_id)
      continue;
    uint4 words[lane_words];
    // The check has found that the tile is sound. It fetched some bytes of the host's memory twice, which may have
    // changed between.
    if (codec::cuda::decode_words(what.jobs[blockIdx.y].page, what.layout, which, words))
      store_tile(what.plan.layers[t.layer], t, block, words);
    else
      what.refused[blockIdx.y] = 1;
  }
}

template <class Launch>
encoded_of<Launch> parameter_of(const launch& what, const encoded_launch& more) {
  encoded_of<Launch> out;
  fill(static_cast<Launch&>(out), what);
  out.layout = codec::layout_of(what.plan.page_bytes);
  out.staged = more.staged;
  out.staged_stride = more.staged_stride;
  out.refused = more.refused;
  out.scratch = scratch_places::of(more.scratch, out.layout.tiles * what.pages);
  return out;
}

template <bool Fetch>
cudaError_t check_pages(const launch& what, const encoded_launch& more, cudaStream_t stream) {
  return with_parameter(what, [&]<class Launch>() {
    const auto parameter = parameter_of<Launch>(what, more);
    const dim3 blocks(blocks_for(parameter.layout.tiles, block_warps), what.pages);
    check_encoded<Fetch, Launch><<<blocks, block_threads, 0, stream>>>(parameter);
    return cudaGetLastError();
  });
}

} // namespace

cudaError_t launch_encoded_gather(const launch& what, const encoded_launch& more, cudaStream_t stream) {
  return with_parameter(what, [&]<class Launch>() {
    const auto parameter = parameter_of<Launch>(what, more);
    const dim3 blocks(blocks_for(what.plan.tile_count, parameter.block_tiles), what.pages);
    gather_encoded<Launch><<<blocks, block_threads, 0, stream>>>(parameter);
    return cudaGetLastError();
  });
}

cudaError_t launch_encoded_check(const launch& what, const encoded_launch& more, cudaStream_t stream) {
  return check_pages<false>(what, more, stream);
}

cudaError_t launch_encoded_fetch(const launch& what, const encoded_launch& more, cudaStream_t stream) {
  return check_pages<true>(what, more, stream);
}

cudaError_t launch_encoded_scatter(const launch& what, const encoded_launch& more, cudaStream_t stream) {
  return with_parameter(what, [&]<class Launch>() {
    const auto parameter = parameter_of<Launch>(what, more);
    const dim3 blocks(blocks_for(what.plan.tile_count, parameter.block_tiles), what.pages);
    start_early(scatter_encoded<Launch>, blocks, stream, parameter);
    return cudaGetLastError();
  });
}

} // namespace troupe::cuda
