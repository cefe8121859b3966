#include "codec/cuda/page_codec_kernels.hpp"
#include "codec/cuda/tile_device_code.hpp"

#include <algorithm>

namespace troupe::codec::cuda {

namespace {

struct launch {
  page_batch pages;
  page_layout layout;
  /// Of an encoder.
  std::uint32_t* progress = nullptr;
  scratch_places scratch{};
  /// Of a decoder: where a second verdict is left, or null.
  std::uint32_t* reports = nullptr;
};

/// The word at `offset` of a payload, with zeroes behind the payload's end.
__device__ uint4 load_word(const std::byte* payload, std::uint64_t offset, std::uint64_t payload_bytes) {
  if (offset + 16 <= payload_bytes)
    return __ldcs(reinterpret_cast<const uint4*>(payload + offset));
  unsigned parts[4] = {};
  for (unsigned i = 0; i < 8; ++i)
    if (offset + i * 2 < payload_bytes)
      parts[i / 2] |= unsigned{*reinterpret_cast<const std::uint16_t*>(payload + offset + i * 2)} << (i % 2 * 16);
  return make_uint4(parts[0], parts[1], parts[2], parts[3]);
}

__device__ void store_word(std::byte* payload, std::uint64_t offset, std::uint64_t payload_bytes, const uint4& word) {
  if (offset + 16 <= payload_bytes) {
    *reinterpret_cast<uint4*>(payload + offset) = word;
    return;
  }
  const unsigned parts[4] = {word.x, word.y, word.z, word.w};
  for (unsigned i = 0; i < 8; ++i)
    if (offset + i * 2 < payload_bytes)
      *reinterpret_cast<std::uint16_t*>(payload + offset + i * 2) =
          static_cast<std::uint16_t>(parts[i / 2] >> (i % 2 * 16));
}

__device__ void encode_tile(const launch& what, std::uint64_t which, block_memory& memory) {
  const auto lane = threadIdx.x % warp_lanes;
  const auto* payload = what.pages.payloads + blockIdx.y * what.pages.payload_stride;
  auto* page = what.pages.encoded + blockIdx.y * what.pages.encoded_stride;
  const auto in_scratch = blockIdx.y * what.layout.tiles + which;
  uint4 words[lane_words];
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i)
    words[i] =
        load_word(payload, which * tile_bytes + 16 * (lane + std::uint64_t{i} * warp_lanes), what.pages.payload_bytes);
  uint2 low_bytes[lane_words];
  const auto all = split(words, low_bytes);
  auto* mantissas = reinterpret_cast<uint2*>(page + what.layout.mantissas + which * tile_elements);
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i)
    mantissas[lane + i * warp_lanes] = low_bytes[i];
  uint2 codes[lane_words / 2];
  const auto choice = encode_exponents(all, memory.below[threadIdx.x / warp_lanes],
                                       what.scratch.escapes + in_scratch * max_tile_escapes, codes);
  if (lane == 0)
    what.scratch.records[in_scratch] = record_of(choice.window, choice.escapes);
  auto* pairs = reinterpret_cast<uint2*>(page + what.layout.codes + which * tile_code_bytes);
#pragma unroll
  for (unsigned i = 0; i < lane_words / 2; ++i)
    pairs[lane + i * warp_lanes] = codes[i];
}

__global__ void __launch_bounds__(block_threads, 4) encode_tiles(const __grid_constant__ launch what) {
  __shared__ block_memory memory;
  const auto step = std::uint64_t{gridDim.x} * block_warps;
  for (auto which = std::uint64_t{blockIdx.x} * block_warps + threadIdx.x / warp_lanes; which < what.layout.tiles;
       which += step)
    encode_tile(what, which, memory);
  if (!is_last_of_page(what.progress + blockIdx.y))
    return;
  const bool fits = close_page(what.pages.encoded + blockIdx.y * what.pages.encoded_stride, what.layout,
                               what.pages.payload_bytes, what.scratch.of_page(blockIdx.y, what.layout.tiles), memory);
  if (threadIdx.x == 0)
    what.pages.verdicts[blockIdx.y] = fits ? 0 : 1;
}

__device__ bool decode_tile(const launch& what, std::uint64_t which) {
  const auto* page = what.pages.encoded + blockIdx.y * what.pages.encoded_stride;
  auto* payload = what.pages.payloads + blockIdx.y * what.pages.payload_stride;
  uint4 words[lane_words];
  const bool sound = decode_words(page, what.layout, which, words);
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i)
    store_word(payload, which * tile_bytes + 16 * (threadIdx.x % warp_lanes + std::uint64_t{i} * warp_lanes),
               what.pages.payload_bytes, words[i]);
  return sound;
}

__global__ void __launch_bounds__(block_threads, 4) decode_tiles(const __grid_constant__ launch what) {
  if (what.pages.verdicts[blockIdx.y] != 0)
    return;
  const auto step = std::uint64_t{gridDim.x} * block_warps;
  bool sound = true;
  for (auto which = std::uint64_t{blockIdx.x} * block_warps + threadIdx.x / warp_lanes; which < what.layout.tiles;
       which += step)
    sound = decode_tile(what, which) && sound;
  if (blockIdx.x == 0 && threadIdx.x == 0)
    sound = is_header_sound(what.pages.encoded + blockIdx.y * what.pages.encoded_stride, what.layout,
                            what.pages.payload_bytes) &&
            sound;
  if (sound)
    return;
  what.pages.verdicts[blockIdx.y] = 1;
  if (what.reports != nullptr)
    what.reports[blockIdx.y] = 1;
}

/// Blocks of one page: no fewer than keep the device busy, and otherwise two tiles for each warp.
unsigned blocks_a_page(const launch& what) {
  constexpr std::uint64_t blocks_wanted = 2048;
  const auto of_one_tile = (what.layout.tiles + block_warps - 1) / block_warps;
  const auto rounds = std::clamp<std::uint64_t>(of_one_tile * what.pages.pages / blocks_wanted, 1, 2);
  return static_cast<unsigned>((of_one_tile + rounds - 1) / rounds);
}

} // namespace

std::uint64_t encode_scratch_bytes(std::uint64_t payload_bytes, std::uint32_t pages) noexcept {
  const auto tiles = layout_of(payload_bytes).tiles * pages;
  return (tiles * record_bytes + 15) / 16 * 16 + tiles * max_tile_escapes;
}

cudaError_t encode_pages(const page_batch& what, const encode_scratch& scratch, cudaStream_t stream) noexcept {
  if (what.pages == 0)
    return cudaSuccess;
  launch all{what, layout_of(what.payload_bytes)};
  all.progress = scratch.progress;
  all.scratch = scratch_places::of(scratch.memory, all.layout.tiles * what.pages);
  encode_tiles<<<dim3(blocks_a_page(all), what.pages), block_threads, 0, stream>>>(all);
  return cudaGetLastError();
}

cudaError_t decode_pages(const page_batch& what, cudaStream_t stream) noexcept {
  if (what.pages == 0)
    return cudaSuccess;
  if (const auto cleared = cudaMemsetAsync(what.verdicts, 0, what.pages * sizeof(std::uint32_t), stream);
      cleared != cudaSuccess)
    return cleared;
  return decode_sound_pages(what, nullptr, stream);
}

cudaError_t decode_sound_pages(const page_batch& what, std::uint32_t* reports, cudaStream_t stream) noexcept {
  if (what.pages == 0)
    return cudaSuccess;
  launch all{what, layout_of(what.payload_bytes)};
  all.reports = reports;
  decode_tiles<<<dim3(blocks_a_page(all), what.pages), block_threads, 0, stream>>>(all);
  return cudaGetLastError();
}

} // namespace troupe::codec::cuda
