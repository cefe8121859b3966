#include "codec/bf16_format.hpp"
#include "codec/cuda/page_codec_kernels.hpp"

#include <algorithm>

namespace troupe::codec::cuda {

namespace {

constexpr unsigned warp_lanes = 32;
constexpr unsigned block_warps = 8;
constexpr unsigned block_threads = warp_lanes * block_warps;
/// Words of 16 bytes of a tile in each lane, at lane, lane + 32, …; the last two are half a tile behind the first two.
constexpr unsigned lane_words = tile_bytes / 16 / warp_lanes;
static_assert(lane_words == 4);
/// Registers of four exponents or codes in each lane, two for each word.
constexpr unsigned lane_quads = 2 * lane_words;

/// Scratch memory of a launch, page by page.
struct scratch_memory {
  /// The blocks of each page that are done.
  std::uint32_t* progress;
  /// Records with the number of escapes in place of their end.
  std::uint32_t* records;
  std::uint8_t* escapes;
};

struct launch {
  page_batch pages;
  page_layout layout;
  scratch_memory scratch;
  /// Of a decoder: where a second verdict is left, or null.
  std::uint32_t* reports = nullptr;
};

__device__ unsigned quad_of(unsigned byte) {
  return byte * 0x01010101U;
}

__device__ unsigned bytes_in(unsigned mask) {
  return __popc(mask) / 8;
}

/// Turns two elements so that their low bytes are mantissa and sign, and the high ones the exponent; and back.
__device__ unsigned turn(unsigned pair) {
  return (pair << 1U & 0xfffefffeU) | (pair >> 15U & 0x00010001U);
}

__device__ unsigned turn_back(unsigned pair) {
  return (pair >> 1U & 0x7fff7fffU) | (pair << 15U & 0x80008000U);
}

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

/// The exponents of a tile, as far as a lane has them.
struct lane_exponents {
  unsigned quads[lane_quads];

  template <class Mask>
  __device__ unsigned count(const Mask& mask) const {
    unsigned bits = 0;
#pragma unroll
    for (unsigned i = 0; i < lane_quads; ++i)
      bits += __popc(mask(quads[i]));
    return __reduce_add_sync(~0U, bits) / 8;
  }

  template <class Select>
  __device__ unsigned largest(const Select& select) const {
    unsigned most = 0;
#pragma unroll
    for (unsigned i = 0; i < lane_quads; ++i)
      most = __vmaxu4(most, select(quads[i]));
    most = __vmaxu4(most, most >> 16U);
    most = __vmaxu4(most, most >> 8U);
    return __reduce_max_sync(~0U, most & 0xffU);
  }
};

/// Memory that the warps of a block use for their tiles, and then, if it is the last one of the page, all together.
union alignas(16) block_memory {
  /// The number of exponents below each value, for the tile of each warp.
  std::uint32_t below[block_warps][256];
  /// Escapes of as many tiles as the block has threads.
  std::uint8_t escapes[block_threads * max_tile_escapes];
};

/// Counts the exponents of a tile by value, then those below each value.
__device__ void count_below_each(const lane_exponents& all, std::uint32_t (&below)[256]) {
  constexpr unsigned values = 256 / warp_lanes;
  const auto lane = threadIdx.x % warp_lanes;
#pragma unroll
  for (unsigned i = 0; i < values; ++i)
    below[lane + i * warp_lanes] = 0;
  __syncwarp();
#pragma unroll
  for (unsigned i = 0; i < lane_quads; ++i)
#pragma unroll
    for (unsigned shift = 0; shift < 32; shift += 8)
      atomicAdd(&below[all.quads[i] >> shift & 0xffU], 1U);
  __syncwarp();
  unsigned counts[values];
  unsigned sum = 0;
#pragma unroll
  for (unsigned i = 0; i < values; ++i)
    sum += counts[i] = below[lane * values + i];
  auto end = sum;
#pragma unroll
  for (unsigned distance = 1; distance < warp_lanes; distance *= 2) {
    const auto other = __shfl_up_sync(~0U, end, distance);
    if (lane >= distance)
      end += other;
  }
  auto begin = end - sum;
#pragma unroll
  for (unsigned i = 0; i < values; ++i) {
    below[lane * values + i] = begin;
    begin += counts[i];
  }
  __syncwarp();
}

/// The choice among several bases, by counts in shared memory.
__device__ window_choice search_window(const lane_exponents& all, unsigned largest, unsigned zeroes,
                                       std::uint32_t (&below)[256]) {
  count_below_each(all, below);
  const auto up_to = [&](unsigned x) { return x == 255 ? tile_elements : below[x + 1]; };
  const auto next_below = [&](unsigned x) {
    // In groups of as many values as there are lanes.
    for (auto first = (x - 1) / warp_lanes * warp_lanes;; first -= warp_lanes) {
      const auto value = first + threadIdx.x % warp_lanes;
      const auto found = __ballot_sync(~0U, value < x && up_to(value) != below[value]);
      if (found != 0)
        return first + 31 - __clz(static_cast<int>(found));
      if (first == 0)
        return 0U;
    }
  };
  const auto out = choose_window(
      largest, zeroes, [&](unsigned x) { return tile_elements - up_to(x); }, [&](unsigned x) { return below[x]; },
      next_below);
  __syncwarp();
  return out;
}

__device__ window_choice window_of_tile(const lane_exponents& all, std::uint32_t (&below)[256]) {
  const auto zeroes = all.count([](unsigned x) { return __vcmpeq4(x, 0); });
  const auto largest = all.largest([](unsigned x) { return x; });
  // The first base is the right one for nearly all tiles.
  const auto window = window_at(largest, zeroes != 0);
  const auto lowest = window.lowest();
  const auto outside = lowest == 0 ? 0 : all.count([=](unsigned e) {
    return __vcmpltu4(e, quad_of(lowest));
  }) - (window.has_zero_code ? zeroes : 0);
  if (outside <= few_escapes)
    return {window, outside};
  return search_window(all, largest, zeroes, below);
}

__device__ unsigned codes_of(unsigned exponents, const tile_window& window) {
  auto codes = __vminu4(__vsub4(quad_of(window.base), exponents), quad_of(escape_code));
  if (window.has_zero_code) {
    codes |= __vcmpeq4(codes, quad_of(zero_code)) & quad_of(escape_code);
    const auto zeroes = __vcmpeq4(exponents, 0);
    codes = (codes & ~zeroes) | (zeroes & quad_of(zero_code));
  }
  return codes;
}

/// Where the escapes of each of a lane's words begin among those of the tile, and how many the tile has.
struct escape_places {
  unsigned begin[lane_words];
  unsigned total = 0;
};

/// Sums over lanes and words, in the order of the elements: words of a lane are a quarter of the tile apart.
__device__ escape_places places_of(const unsigned (&codes)[lane_quads]) {
  unsigned counts[lane_words];
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i)
    counts[i] = bytes_in(__vcmpeq4(codes[2 * i], quad_of(escape_code))) +
                bytes_in(__vcmpeq4(codes[2 * i + 1], quad_of(escape_code)));
  unsigned sums[2] = {counts[0] | counts[1] << 16U, counts[2] | counts[3] << 16U};
  const auto lane = threadIdx.x % warp_lanes;
#pragma unroll
  for (unsigned distance = 1; distance < warp_lanes; distance *= 2) {
    const auto first = __shfl_up_sync(~0U, sums[0], distance);
    const auto second = __shfl_up_sync(~0U, sums[1], distance);
    if (lane >= distance) {
      sums[0] += first;
      sums[1] += second;
    }
  }
  escape_places out;
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto up_to_lane = sums[i / 2] >> (i % 2 * 16) & 0xffffU;
    out.begin[i] = out.total + up_to_lane - counts[i];
    out.total += __shfl_sync(~0U, up_to_lane, warp_lanes - 1);
  }
  return out;
}

/// Calls `with` for each escape of a lane: its quad, its byte's shift in there, and its place among the tile's.
template <class With>
__device__ void for_each_escape(const unsigned (&codes)[lane_quads], const escape_places& places, const With& with) {
#pragma unroll
  for (unsigned i = 0; i < lane_quads; ++i) {
    auto place = places.begin[i / 2];
    if (i % 2 != 0)
      place += bytes_in(__vcmpeq4(codes[i - 1], quad_of(escape_code)));
    for (auto left = __vcmpeq4(codes[i], quad_of(escape_code)) & 0x01010101U; left != 0; left &= left - 1)
      with(i, static_cast<unsigned>(__ffs(static_cast<int>(left)) - 1), place++);
  }
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
  lane_exponents all;
  auto* mantissas = reinterpret_cast<uint2*>(page + what.layout.mantissas + which * tile_elements);
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto& w = words[i];
    const uint4 t = make_uint4(turn(w.x), turn(w.y), turn(w.z), turn(w.w));
    mantissas[lane + i * warp_lanes] = make_uint2(__byte_perm(t.x, t.y, 0x6420), __byte_perm(t.z, t.w, 0x6420));
    all.quads[2 * i] = __byte_perm(t.x, t.y, 0x7531);
    all.quads[2 * i + 1] = __byte_perm(t.z, t.w, 0x7531);
  }
  const auto choice = window_of_tile(all, memory.below[threadIdx.x / warp_lanes]);
  if (lane == 0)
    what.scratch.records[in_scratch] = record_of(choice.window, choice.escapes);
  if (choice.escapes > max_tile_escapes)
    return;
  unsigned codes[lane_quads];
#pragma unroll
  for (unsigned i = 0; i < lane_quads; ++i)
    codes[i] = codes_of(all.quads[i], choice.window);
  auto* pairs = reinterpret_cast<uint2*>(page + what.layout.codes + which * tile_code_bytes);
#pragma unroll
  for (unsigned i = 0; i < lane_words / 2; ++i)
    pairs[lane + i * warp_lanes] =
        make_uint2(codes[2 * i] | codes[2 * i + 4] << 4U, codes[2 * i + 1] | codes[2 * i + 5] << 4U);
  if (choice.escapes == 0)
    return;
  auto* list = what.scratch.escapes + in_scratch * max_tile_escapes;
  for_each_escape(codes, places_of(codes), [&](unsigned quad, unsigned shift, unsigned place) {
    list[place] = static_cast<std::uint8_t>(all.quads[quad] >> shift);
  });
}

/// The sum of `x` over this thread and those before it, and over all threads of the block.
__device__ uint2 sum_in_block(unsigned x) {
  __shared__ unsigned of_warp[block_warps];
  const auto lane = threadIdx.x % warp_lanes;
  for (unsigned distance = 1; distance < warp_lanes; distance *= 2) {
    const auto other = __shfl_up_sync(~0U, x, distance);
    if (lane >= distance)
      x += other;
  }
  __syncthreads();
  if (lane == warp_lanes - 1)
    of_warp[threadIdx.x / warp_lanes] = x;
  __syncthreads();
  unsigned total = 0;
  for (unsigned i = 0; i < block_warps; ++i) {
    if (i == threadIdx.x / warp_lanes)
      x += total;
    total += of_warp[i];
  }
  return make_uint2(x, total);
}

/// Copies a tile's escapes from scratch memory, in whole words: there are leftovers behind them.
__device__ void copy_escapes(const std::uint8_t* from, std::uint8_t* to, unsigned count) {
  for (unsigned i = 0; i < count; i += 32) {
    const auto first = *reinterpret_cast<const uint4*>(from + i);
    const auto second = *reinterpret_cast<const uint4*>(from + i + 16);
    const unsigned parts[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (unsigned k = 0; k < 32; ++k)
      if (i + k < count)
        to[i + k] = static_cast<std::uint8_t>(parts[k / 4] >> (k % 4 * 8));
  }
}

/// Completes a page whose tiles are encoded: records, list of escapes, header. Run by one block.
__device__ void close_page(const launch& what, block_memory& memory) {
  auto* page = what.pages.encoded + blockIdx.y * what.pages.encoded_stride;
  auto* list = reinterpret_cast<std::uint8_t*>(page + what.layout.escapes);
  const auto* records = what.scratch.records + blockIdx.y * what.layout.tiles;
  unsigned total = 0;
  bool fits = true;
  for (std::uint64_t first = 0; first < what.layout.tiles; first += block_threads) {
    const auto which = first + threadIdx.x;
    const auto record = which < what.layout.tiles ? records[which] : 0;
    const auto count = escapes_end_of(record);
    const auto sums = sum_in_block(count);
    const auto end = total + sums.x;
    total += sums.y;
    fits = __syncthreads_and(fits && count <= max_tile_escapes && total <= what.layout.escape_room) != 0;
    if (!fits)
      break;
    if (which < what.layout.tiles) {
      reinterpret_cast<std::uint32_t*>(page + what.layout.records)[which] = record_of(window_of(record), end);
      copy_escapes(what.scratch.escapes + (blockIdx.y * what.layout.tiles + which) * max_tile_escapes,
                   memory.escapes + sums.x - count, count);
    }
    __syncthreads();
    for (auto i = threadIdx.x; i < sums.y; i += block_threads)
      list[total - sums.y + i] = memory.escapes[i];
  }
  if (threadIdx.x == 0)
    what.pages.verdicts[blockIdx.y] = fits ? 0 : 1;
  if (!fits)
    return;
  const auto begin = what.layout.escapes + total;
  const auto aligned = (begin + 15) / 16 * 16;
  if (begin + threadIdx.x < aligned)
    page[begin + threadIdx.x] = std::byte{0};
  for (auto at = aligned + std::uint64_t{threadIdx.x} * 16; at < what.layout.bytes; at += block_threads * 16)
    *reinterpret_cast<uint4*>(page + at) = make_uint4(0, 0, 0, 0);
  if (threadIdx.x == 0) {
    page_header header;
    header.payload_bytes = what.pages.payload_bytes;
    header.escapes = total;
    *reinterpret_cast<page_header*>(page) = header;
  }
}

/// Returns true in all threads of the block that is the last one of its page to get here, which is the first one of the
/// next launch then.
__device__ bool is_last_of_page(std::uint32_t* progress) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(progress, 1U) + 1 == gridDim.x;
    if (last)
      *progress = 0;
  }
  __syncthreads();
  __threadfence();
  return last;
}

__global__ void __launch_bounds__(block_threads, 4) encode_tiles(const __grid_constant__ launch what) {
  __shared__ block_memory memory;
  const auto step = std::uint64_t{gridDim.x} * block_warps;
  for (auto which = std::uint64_t{blockIdx.x} * block_warps + threadIdx.x / warp_lanes; which < what.layout.tiles;
       which += step)
    encode_tile(what, which, memory);
  if (is_last_of_page(what.scratch.progress + blockIdx.y))
    close_page(what, memory);
}

/// Replaces the exponents of escapes. Returns false if there are more or fewer than in the record.
__device__ bool fill_escapes(const unsigned (&codes)[lane_quads], const std::uint8_t* list, unsigned count,
                             lane_exponents& all) {
  const auto places = places_of(codes);
  if (places.total != count)
    return false;
  for_each_escape(codes, places, [&](unsigned quad, unsigned shift, unsigned place) {
    all.quads[quad] = (all.quads[quad] & ~(0xffU << shift)) | unsigned{list[place]} << shift;
  });
  return true;
}

__device__ bool decode_tile(const launch& what, std::uint64_t which) {
  const auto lane = threadIdx.x % warp_lanes;
  const auto* page = what.pages.encoded + blockIdx.y * what.pages.encoded_stride;
  auto* payload = what.pages.payloads + blockIdx.y * what.pages.payload_stride;
  const auto* mantissas = reinterpret_cast<const uint2*>(page + what.layout.mantissas + which * tile_elements);
  const auto* pairs = reinterpret_cast<const uint2*>(page + what.layout.codes + which * tile_code_bytes);
  const auto* records = reinterpret_cast<const std::uint32_t*>(page + what.layout.records);
  uint2 low_bytes[lane_words];
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i)
    low_bytes[i] = __ldcs(mantissas + lane + i * warp_lanes);
  unsigned codes[lane_quads];
#pragma unroll
  for (unsigned i = 0; i < lane_words / 2; ++i) {
    const auto x = __ldcs(pairs + lane + i * warp_lanes);
    codes[2 * i] = x.x & 0x0f0f0f0fU;
    codes[2 * i + 1] = x.y & 0x0f0f0f0fU;
    codes[2 * i + 4] = x.x >> 4U & 0x0f0f0f0fU;
    codes[2 * i + 5] = x.y >> 4U & 0x0f0f0f0fU;
  }
  const auto record = records[which];
  const auto begin = which == 0 ? 0 : escapes_end_of(records[which - 1]);
  const auto end = escapes_end_of(record);
  const auto window = window_of(record);
  lane_exponents all;
  unsigned escaped = 0;
#pragma unroll
  for (unsigned i = 0; i < lane_quads; ++i) {
    all.quads[i] = __vsub4(quad_of(window.base), codes[i]);
    if (window.has_zero_code)
      all.quads[i] &= ~__vcmpeq4(codes[i], quad_of(zero_code));
    escaped |= __vcmpeq4(codes[i], quad_of(escape_code));
  }
  bool sound = begin <= end && end <= what.layout.escape_room && end - begin <= max_tile_escapes;
  if (sound && (begin != end || __any_sync(~0U, escaped != 0)))
    sound = fill_escapes(codes, reinterpret_cast<const std::uint8_t*>(page + what.layout.escapes) + begin, end - begin,
                         all);
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto& low = low_bytes[i];
    const auto front = all.quads[2 * i];
    const auto back = all.quads[2 * i + 1];
    store_word(payload, which * tile_bytes + 16 * (lane + std::uint64_t{i} * warp_lanes), what.pages.payload_bytes,
               make_uint4(turn_back(__byte_perm(low.x, front, 0x5140)), turn_back(__byte_perm(low.x, front, 0x7362)),
                          turn_back(__byte_perm(low.y, back, 0x5140)), turn_back(__byte_perm(low.y, back, 0x7362))));
  }
  return sound;
}

/// Whether the header is the one that belongs to these records.
__device__ bool is_header_sound(const launch& what) {
  const auto* page = what.pages.encoded + blockIdx.y * what.pages.encoded_stride;
  const auto* records = reinterpret_cast<const std::uint32_t*>(page + what.layout.records);
  page_header sound;
  sound.payload_bytes = what.pages.payload_bytes;
  sound.escapes = escapes_end_of(records[what.layout.tiles - 1]);
  const auto* expected = reinterpret_cast<const std::uint64_t*>(&sound);
  const auto* found = reinterpret_cast<const std::uint64_t*>(page);
  bool equal = true;
  for (unsigned i = 0; i < sizeof(page_header) / sizeof *found; ++i)
    equal = equal && found[i] == expected[i];
  return equal;
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
    sound = is_header_sound(what) && sound;
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
  launch all{what, layout_of(what.payload_bytes), {}, nullptr};
  const auto tiles = all.layout.tiles * what.pages;
  const auto bytes = encode_scratch_bytes(what.payload_bytes, what.pages);
  all.scratch.progress = scratch.progress;
  all.scratch.records = reinterpret_cast<std::uint32_t*>(scratch.memory);
  all.scratch.escapes = reinterpret_cast<std::uint8_t*>(scratch.memory + bytes - tiles * max_tile_escapes);
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
  const launch all{what, layout_of(what.payload_bytes), {}, reports};
  decode_tiles<<<dim3(blocks_a_page(all), what.pages), block_threads, 0, stream>>>(all);
  return cudaGetLastError();
}

} // namespace troupe::codec::cuda
