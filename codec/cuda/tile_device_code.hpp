#pragma once

#include "codec/bf16_format.hpp"

#include <cstddef>
#include <cstdint>

/// The BF16 encoding for the kernels of a GPU: tiles in the registers of a warp, and what makes them a page. Included
/// by CUDA sources only; a kernel that includes it has blocks of `block_threads` threads and one tile for each warp at
/// a time. Any function that a warp or a block calls is called by all of its threads.

namespace troupe::codec::cuda {

inline constexpr unsigned warp_lanes = 32;
inline constexpr unsigned block_warps = 8;
inline constexpr unsigned block_threads = warp_lanes * block_warps;
/// Words of 16 bytes of a tile in each lane, at lane, lane + 32, …; the last two are half a tile behind the first two.
inline constexpr unsigned lane_words = tile_bytes / 16 / warp_lanes;
static_assert(lane_words == 4);
/// Registers of four exponents or codes in each lane, two for each word.
inline constexpr unsigned lane_quads = 2 * lane_words;

__device__ inline unsigned quad_of(unsigned byte) {
  return byte * 0x01010101U;
}

__device__ inline unsigned bytes_in(unsigned mask) {
  return __popc(mask) / 8;
}

/// Turns two elements so that their low bytes are mantissa and sign, and the high ones the exponent; and back.
__device__ inline unsigned turn(unsigned pair) {
  return (pair << 1U & 0xfffefffeU) | (pair >> 15U & 0x00010001U);
}

__device__ inline unsigned turn_back(unsigned pair) {
  return (pair >> 1U & 0x7fff7fffU) | (pair << 15U & 0x80008000U);
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
__device__ inline void count_below_each(const lane_exponents& all, std::uint32_t (&below)[256]) {
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
__device__ inline window_choice search_window(const lane_exponents& all, unsigned largest, unsigned zeroes,
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

__device__ inline window_choice window_of_tile(const lane_exponents& all, std::uint32_t (&below)[256]) {
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

__device__ inline unsigned codes_of(unsigned exponents, const tile_window& window) {
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
__device__ inline escape_places places_of(const unsigned (&codes)[lane_quads]) {
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
__device__ inline void for_each_escape(const unsigned (&codes)[lane_quads], const escape_places& places,
                                       const With& with) {
#pragma unroll
  for (unsigned i = 0; i < lane_quads; ++i) {
    auto place = places.begin[i / 2];
    if (i % 2 != 0)
      place += bytes_in(__vcmpeq4(codes[i - 1], quad_of(escape_code)));
    for (auto left = __vcmpeq4(codes[i], quad_of(escape_code)) & 0x01010101U; left != 0; left &= left - 1)
      with(i, static_cast<unsigned>(__ffs(static_cast<int>(left)) - 1), place++);
  }
}

/// Splits the words of a tile that a lane has into exponents and, in the order of the words, what is stored as it is.
__device__ inline lane_exponents split(const uint4 (&words)[lane_words], uint2 (&mantissas)[lane_words]) {
  lane_exponents all;
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto& w = words[i];
    const uint4 t = make_uint4(turn(w.x), turn(w.y), turn(w.z), turn(w.w));
    mantissas[i] = make_uint2(__byte_perm(t.x, t.y, 0x6420), __byte_perm(t.z, t.w, 0x6420));
    all.quads[2 * i] = __byte_perm(t.x, t.y, 0x7531);
    all.quads[2 * i + 1] = __byte_perm(t.z, t.w, 0x7531);
  }
  return all;
}

/// Encodes the exponents of a tile: the codes of a lane's first words, with those half a tile behind them, and the
/// escapes, in their order, at `list`, which has room for `max_tile_escapes`. A tile with more escapes has no encoding;
/// then no list is left.
__device__ inline window_choice encode_exponents(const lane_exponents& all, std::uint32_t (&below)[256],
                                                 std::uint8_t* list, uint2 (&pairs)[lane_words / 2]) {
  const auto choice = window_of_tile(all, below);
  unsigned codes[lane_quads];
#pragma unroll
  for (unsigned i = 0; i < lane_quads; ++i)
    codes[i] = codes_of(all.quads[i], choice.window);
#pragma unroll
  for (unsigned i = 0; i < lane_words / 2; ++i)
    pairs[i] = make_uint2(codes[2 * i] | codes[2 * i + 4] << 4U, codes[2 * i + 1] | codes[2 * i + 5] << 4U);
  if (choice.escapes != 0 && choice.escapes <= max_tile_escapes)
    for_each_escape(codes, places_of(codes), [&](unsigned quad, unsigned shift, unsigned place) {
      list[place] = static_cast<std::uint8_t>(all.quads[quad] >> shift);
    });
  return choice;
}

/// The sum of `x` over this thread and those before it, and over all threads of the block.
__device__ inline uint2 sum_in_block(unsigned x) {
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
__device__ inline void copy_escapes(const std::uint8_t* from, std::uint8_t* to, unsigned count) {
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

/// What the tiles of a page leave in scratch memory.
struct tiles_left {
  /// Records with the number of escapes in place of their end, one for each tile.
  const std::uint32_t* records = nullptr;
  /// Room for `max_tile_escapes` for each tile.
  const std::uint8_t* escapes = nullptr;
};

/// Scratch memory of a launch, tile by tile, for the tiles of all pages.
struct scratch_places {
  std::uint32_t* records = nullptr;
  std::uint8_t* escapes = nullptr;

  /// In memory of `encode_scratch_bytes`.
  static scratch_places of(std::byte* memory, std::uint64_t tiles) noexcept {
    return {reinterpret_cast<std::uint32_t*>(memory),
            reinterpret_cast<std::uint8_t*>(memory + (tiles * record_bytes + 15) / 16 * 16)};
  }
  __device__ tiles_left of_page(std::uint64_t page, std::uint64_t tiles) const {
    return {records + page * tiles, escapes + page * tiles * max_tile_escapes};
  }
};

/// Completes a page whose tiles are encoded: header, records, list of escapes, zeroes behind it. Returns whether they
/// fit. Run by one block.
__device__ inline bool close_page(std::byte* page, const page_layout& layout, std::uint64_t payload_bytes,
                                  const tiles_left& tiles, block_memory& memory) {
  auto* list = reinterpret_cast<std::uint8_t*>(page + layout.escapes);
  unsigned total = 0;
  for (std::uint64_t first = 0; first < layout.tiles; first += block_threads) {
    const auto which = first + threadIdx.x;
    const auto record = which < layout.tiles ? tiles.records[which] : 0;
    const auto count = escapes_end_of(record);
    const auto sums = sum_in_block(count);
    const auto end = total + sums.x;
    total += sums.y;
    if (__syncthreads_and(count <= max_tile_escapes && total <= layout.escape_room) == 0)
      return false;
    if (which < layout.tiles) {
      reinterpret_cast<std::uint32_t*>(page + layout.records)[which] = record_of(window_of(record), end);
      copy_escapes(tiles.escapes + which * max_tile_escapes, memory.escapes + sums.x - count, count);
    }
    __syncthreads();
    for (auto i = threadIdx.x; i < sums.y; i += block_threads)
      list[total - sums.y + i] = memory.escapes[i];
  }
  const auto begin = layout.escapes + total;
  const auto aligned = (begin + 15) / 16 * 16;
  if (begin + threadIdx.x < aligned)
    page[begin + threadIdx.x] = std::byte{0};
  for (auto at = aligned + std::uint64_t{threadIdx.x} * 16; at < layout.bytes; at += block_threads * 16)
    *reinterpret_cast<uint4*>(page + at) = make_uint4(0, 0, 0, 0);
  if (threadIdx.x == 0) {
    page_header header;
    header.payload_bytes = payload_bytes;
    header.escapes = total;
    *reinterpret_cast<page_header*>(page) = header;
  }
  return true;
}

/// Returns true in all threads of the block that is the last one of its page to get here, which is the first one of the
/// next launch then. What the other blocks wrote before is visible to it.
__device__ inline bool is_last_of_page(std::uint32_t* progress) {
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

/// Replaces the exponents of escapes. Returns false if there are more or fewer than in the record.
__device__ inline bool fill_escapes(const unsigned (&codes)[lane_quads], const std::uint8_t* list, unsigned count,
                                    lane_exponents& all) {
  const auto places = places_of(codes);
  if (places.total != count)
    return false;
  for_each_escape(codes, places, [&](unsigned quad, unsigned shift, unsigned place) {
    all.quads[quad] = (all.quads[quad] & ~(0xffU << shift)) | unsigned{list[place]} << shift;
  });
  return true;
}

/// The escapes of a tile in the list of its page, as its record and the one before it say.
struct listed_escapes {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  /// Whether they can be those of a tile.
  __device__ bool are_sound(const page_layout& layout) const {
    return begin <= end && end <= layout.escape_room && end - begin <= max_tile_escapes;
  }
};

__device__ inline listed_escapes escapes_of(const std::uint32_t* records, std::uint64_t which) {
  return {which == 0 ? 0 : escapes_end_of(records[which - 1]), escapes_end_of(records[which])};
}

/// Decodes a tile of a page with this layout. Returns false for one that no encoder wrote; then the words are
/// unspecified. Reads within the page whatever its bytes are.
__device__ inline bool decode_words(const std::byte* page, const page_layout& layout, std::uint64_t which,
                                    uint4 (&words)[lane_words]) {
  const auto lane = threadIdx.x % warp_lanes;
  const auto* mantissas = reinterpret_cast<const uint2*>(page + layout.mantissas + which * tile_elements);
  const auto* pairs = reinterpret_cast<const uint2*>(page + layout.codes + which * tile_code_bytes);
  const auto* records = reinterpret_cast<const std::uint32_t*>(page + layout.records);
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
  const auto listed = escapes_of(records, which);
  const auto window = window_of(records[which]);
  lane_exponents all;
  unsigned escaped = 0;
#pragma unroll
  for (unsigned i = 0; i < lane_quads; ++i) {
    all.quads[i] = __vsub4(quad_of(window.base), codes[i]);
    if (window.has_zero_code)
      all.quads[i] &= ~__vcmpeq4(codes[i], quad_of(zero_code));
    escaped |= __vcmpeq4(codes[i], quad_of(escape_code));
  }
  bool sound = listed.are_sound(layout);
  if (sound && (listed.begin != listed.end || __any_sync(~0U, escaped != 0)))
    sound = fill_escapes(codes, reinterpret_cast<const std::uint8_t*>(page + layout.escapes) + listed.begin,
                         listed.end - listed.begin, all);
#pragma unroll
  for (unsigned i = 0; i < lane_words; ++i) {
    const auto& low = low_bytes[i];
    const auto front = all.quads[2 * i];
    const auto back = all.quads[2 * i + 1];
    words[i] = make_uint4(turn_back(__byte_perm(low.x, front, 0x5140)), turn_back(__byte_perm(low.x, front, 0x7362)),
                          turn_back(__byte_perm(low.y, back, 0x5140)), turn_back(__byte_perm(low.y, back, 0x7362)));
  }
  return sound;
}

/// Whether the header is the one that belongs to the records. Called by one thread.
__device__ inline bool is_header_sound(const std::byte* page, const page_layout& layout, std::uint64_t payload_bytes) {
  page_header sound;
  sound.payload_bytes = payload_bytes;
  sound.escapes = escapes_end_of(reinterpret_cast<const std::uint32_t*>(page + layout.records)[layout.tiles - 1]);
  const auto* expected = reinterpret_cast<const std::uint64_t*>(&sound);
  const auto* found = reinterpret_cast<const std::uint64_t*>(page);
  bool equal = true;
  for (unsigned i = 0; i < sizeof(page_header) / sizeof *found; ++i)
    equal = equal && found[i] == expected[i];
  return equal;
}

} // namespace troupe::codec::cuda
