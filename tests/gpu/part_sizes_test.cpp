#include "codec/cuda/page_codec_kernels.hpp"
#include "gpu/cuda/page_kernels.hpp"
#include "gpu/cuda/page_parts.hpp"
#include "gpu/cuda/part_sizes.hpp"
#include "tests/catch.hpp"

namespace part_sizes_test {

/// The memory of parts; needs no GPU.

using namespace troupe;
using namespace troupe::cuda;

namespace {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;
constexpr auto part_bytes = 32 * mebibyte;

part_sizes sizes_of(std::uint64_t page_bytes, std::uint32_t blocks_per_page = 1, bool codec_tiles = false) {
  return part_sizes::of(page_bytes, blocks_per_page, part_bytes, codec_tiles);
}

pipeline_memory memory_of(std::uint64_t page_bytes, move_direction direction, bool encodes = true,
                          bool codec_tiles = false) {
  return pipeline_memory::of(sizes_of(page_bytes, 1, codec_tiles), page_bytes, direction, encodes);
}

} // namespace

TEST_CASE("part sizes: movers of usual pages take the same memory, whatever the size of their pages") {
  for (const std::uint64_t page_bytes : {mebibyte / 8, mebibyte, 2 * mebibyte, 8 * mebibyte, 32 * mebibyte}) {
    const auto sizes = sizes_of(page_bytes);
    CHECK(sizes.staging_bytes == part_bytes);
    CHECK(sizes.encoded_pages == part_bytes / page_bytes);
    for (const auto direction : {move_direction::gather, move_direction::scatter}) {
      const auto memory = memory_of(page_bytes, direction);
      CHECK(memory.staging_bytes == part_bytes);
      CHECK(memory.plain_bytes == part_bytes);
      CHECK((memory.scratch_bytes > 0) == (direction == move_direction::gather));
    }
  }
}

TEST_CASE("part sizes: pages that are encoded while they are gathered take no memory as they are") {
  CHECK(sizes_of(2 * mebibyte, 1, true).encoded_at_once);
  CHECK_FALSE(sizes_of(2 * mebibyte).encoded_at_once);
  CHECK_FALSE(sizes_of(mebibyte + 1, 1, true).encoded_at_once);
  for (const auto direction : {move_direction::gather, move_direction::scatter}) {
    auto two_steps = memory_of(2 * mebibyte, direction);
    const auto memory = memory_of(2 * mebibyte, direction, true, true);
    CHECK(memory.plain_bytes == 0);
    CHECK(memory.scratch_bytes == two_steps.scratch_bytes);
    CHECK(two_steps.covers(memory));
    two_steps.plain_bytes = 0;
    CHECK(memory.covers(two_steps));
  }
}

TEST_CASE("part sizes: movers that make one call at a time have two pipelines together") {
  CHECK(pipelines_for(0, 2) == 2);
  CHECK(pipelines_for(2, 2) == 2);
  CHECK(pipelines_for(0, 1) == 1);
  CHECK(pipelines_for(1, 1) == 2);
  CHECK(pipelines_for(2, 1) == 2);
  CHECK(pipelines_for(2, 4) == 4);
  CHECK(pipelines_for(4, 1) == 4);
}

TEST_CASE("part sizes: a part has one page at least, and no more than a launch") {
  CHECK(sizes_of(33 * mebibyte).staging_bytes == 33 * mebibyte);
  CHECK(sizes_of(33 * mebibyte).encoded_pages == 1);
  CHECK(sizes_of(4096).pages == launch::most_pages);
  CHECK(sizes_of(4096).encoded_pages == launch::most_pages);
  CHECK(sizes_of(mebibyte, 64).pages == launch::most_blocks / 64);
}

TEST_CASE("part sizes: memory for several movers is enough for each") {
  const auto large = memory_of(40 * mebibyte + 1, move_direction::gather);
  const auto small = memory_of(mebibyte, move_direction::gather);
  CHECK_FALSE(large.covers(small));
  CHECK_FALSE(small.covers(large));
  const auto both = small.joined(large);
  CHECK(both.covers(large));
  CHECK(both.covers(small));
  CHECK(both.staging_bytes == large.staging_bytes);
  CHECK(both.scratch_bytes == small.scratch_bytes);
  CHECK(both.joined(small).covers(both));
}

TEST_CASE("part sizes: no memory for an encoding where there is none") {
  CHECK(memory_of(4 * mebibyte, move_direction::gather, false).plain_bytes == 0);
  CHECK(memory_of(4 * mebibyte, move_direction::gather, false).scratch_bytes == 0);
  // Pages of others may be encoded all the same.
  CHECK(memory_of(4 * mebibyte, move_direction::scatter, false).plain_bytes == part_bytes);
  // An odd number of bytes is no BF16.
  CHECK(sizes_of(mebibyte + 1).encoded_pages == 0);
  CHECK(memory_of(mebibyte + 1, move_direction::scatter).plain_bytes == 0);
}

} // namespace part_sizes_test
