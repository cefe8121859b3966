#include "codec/bf16_format.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/page_nest.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>

namespace troupe::cuda {

namespace {

constexpr std::uint64_t word = io::checksum_word_bytes;

std::uint64_t address_of(const std::byte* p) noexcept {
  return reinterpret_cast<std::uint64_t>(p);
}

/// The widest access that all addresses and sizes permit.
std::uint32_t widest_unit(const std::vector<page_nest>& nests) noexcept {
  std::uint64_t bits = word;
  for (const auto& nest : nests)
    bits |= address_of(nest.base) | nest.content_bytes | nest.block_stride | nest.page_offset |
            (nest.part.count > 1 ? nest.part.stride : 0) | (nest.head.count > 1 ? nest.head.stride : 0) |
            (nest.token.count > 1 ? nest.token.stride : 0);
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// Adds the tiles of the part of a block under one part and head, which is contiguous in the page.
void add_tiles(std::vector<tile>& tiles, const page_nest& nest, tile first) {
  const auto run_words = nest.run_bytes / word;
  const auto words = run_words * nest.token.count;
  const auto begin = first.offset;
  const auto page_word = first.page_word;
  // Each run consists of whole tiles: no tile spans two runs.
  for (std::uint64_t at = 0; at < words;) {
    const auto run = at / run_words;
    auto length = std::min<std::uint64_t>(tile_words, words - at);
    if (run_words >= tile_words)
      length = std::min(length, (run + 1) * run_words - at);
    first.offset = begin + run * nest.token.stride;
    first.page_word = static_cast<std::uint32_t>(page_word + at);
    first.run_word = static_cast<std::uint32_t>(at % run_words);
    first.words = static_cast<std::uint16_t>(length);
    tiles.push_back(first);
    at += length;
  }
}

void plan_tiles(page_plan& plan, const kv_cache_view& view) {
  const auto nests = page_nests(view, true);
  for (std::uint32_t layer = 0; layer < nests.size(); ++layer) {
    const auto& nest = nests[layer];
    plan.layers.push_back({address_of(nest.base), nest.block_stride, nest.token.stride,
                           fast_divisor(static_cast<std::uint32_t>(nest.run_bytes / word))});
    auto page_word = nest.page_offset / word;
    for (std::uint32_t p = 0; p < nest.part.count; ++p)
      for (std::uint32_t h = 0; h < nest.head.count; ++h)
        for (std::uint32_t b = 0; b < view.blocks_per_page; ++b) {
          tile first;
          first.offset = p * nest.part.stride + h * nest.head.stride;
          first.layer = layer;
          first.page_word = static_cast<std::uint32_t>(page_word);
          first.block = static_cast<std::uint16_t>(b);
          add_tiles(plan.tiles, nest, first);
          page_word += nest.run_bytes * nest.token.count / word;
        }
  }
}

/// Whether the tiles cut the page as the encoding does, and none is shorter.
bool are_codec_tiles(const std::vector<tile>& tiles, std::uint64_t page_bytes) {
  static_assert(tile_words * word == codec::tile_bytes);
  if (tiles.size() * codec::tile_bytes != page_bytes)
    return false;
  for (std::size_t i = 0; i < tiles.size(); ++i)
    if (tiles[i].words != tile_words || tiles[i].page_word != i * tile_words)
      return false;
  return true;
}

void plan_general(page_plan& plan, const std::vector<page_nest>& nests) {
  for (const auto& nest : nests)
    plan.general.push_back({address_of(nest.base), nest.block_stride, nest.part.stride, nest.head.stride,
                            nest.token.stride, nest.page_offset, static_cast<std::uint32_t>(nest.content_bytes),
                            nest.head.count});
}

} // namespace

result<page_plan> make_page_plan(const kv_cache_view& view) {
  page_plan plan;
  plan.block_tokens = view.tokens_per_block();
  plan.blocks_per_page = view.blocks_per_page;
  plan.page_bytes = view.geometry.page_bytes();
  // Words of a page are counted in 31 bits.
  if (plan.page_bytes / word >= std::numeric_limits<std::int32_t>::max())
    return fail(errc::unsupported,
                fmt::format("pages of {} bytes: a GPU moves pages of less than 32 GiB", plan.page_bytes));
  if (view.blocks_per_page > launch::most_blocks)
    return fail(errc::unsupported, fmt::format("{} blocks to a page: a GPU moves pages of up to {} blocks",
                                               view.blocks_per_page, launch::most_blocks));
  const auto nests = page_nests(view, false);
  plan.unit = widest_unit(nests);
  if (plan.unit == word)
    plan_tiles(plan, view);
  else
    plan_general(plan, nests);
  plan.codec_tiles = !plan.tiles.empty() && are_codec_tiles(plan.tiles, plan.page_bytes);
  return plan;
}

} // namespace troupe::cuda
