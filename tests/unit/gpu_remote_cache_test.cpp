#include "codec/page_codec.hpp"
#include "gpu/remote_cache.hpp"
#include "tests/catch.hpp"
#include "tests/named_memory.hpp"
#include "tests/unit/corrupted_page.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <unistd.h>
#include <vector>

namespace gpu_remote_cache_test {

using namespace troupe;

namespace {

class shared_memory : public test::named_memory {
public:
  explicit shared_memory(const std::vector<std::byte>& bytes) : named_memory(bytes.size()) {
    std::ranges::copy(bytes, data());
  }

  void cut(std::size_t bytes) const { REQUIRE(::ftruncate(descriptor(), static_cast<off_t>(bytes)) == 0); }
  std::vector<std::byte> read(std::size_t count) const {
    std::vector<std::byte> out(count);
    REQUIRE(::pread(descriptor(), out.data(), count, 0) == static_cast<ssize_t>(count));
    return out;
  }
};

std::vector<std::byte> counted_bytes(std::size_t count) {
  std::vector<std::byte> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::byte>(i * 7 + i / 256);
  return out;
}

constexpr std::size_t memory_bytes = 400;

/// Two runs: blocks of 10 bytes, 20 apart; and of 6 bytes behind each other.
remote_layout small_layout(const std::string& name) {
  remote_layout out;
  out.memories = {shared_memory_handle{name, memory_bytes}};
  out.runs = {{0, 5, 20, 10}, {0, 300, 6, 6}};
  out.blocks = 8;
  out.blocks_per_page = 2;
  return out;
}

block_move move_of(std::vector<std::byte>& page, const std::vector<std::uint32_t>& blocks) {
  block_move out;
  out.block = blocks.front();
  out.further_blocks = std::span(blocks).subspan(1);
  out.page = page.data();
  out.page_bytes = page.size();
  return out;
}

} // namespace

TEST_CASE("gpu remote cache: a layout is valid where every byte of every block lies in its memory", "[gpu]") {
  const auto good = small_layout("/x");
  CHECK(validate(good));
  CHECK(good.page_bytes() == 32);
  const auto code_with = [&](auto change) {
    auto x = good;
    change(x);
    const auto verdict = validate(x);
    return verdict ? errc::ok : verdict.error().code;
  };
  CHECK(code_with([](auto& x) { x.memories.clear(); }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.runs.clear(); }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.blocks = 0; }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.blocks_per_page = 0; }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.block_tokens = 0; }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.runs[1].memory = 1; }) == errc::out_of_range);
  CHECK(code_with([](auto& x) { x.runs[1].offset = memory_bytes - 47; }) == errc::out_of_range);
  CHECK(code_with([](auto& x) { x.runs[1].offset = memory_bytes - 48; }) == errc::ok);
  CHECK(code_with([](auto& x) { x.runs[1].offset = std::numeric_limits<std::uint64_t>::max(); }) == errc::out_of_range);
  CHECK(code_with([](auto& x) { x.runs[0].block_stride = std::numeric_limits<std::uint64_t>::max() / 2; }) ==
        errc::out_of_range);
  CHECK(code_with([](auto& x) { x.runs[0].block_stride = 9; }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.runs[0].bytes = 0; }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.runs[0].bytes = std::uint64_t{1} << 60U; }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.blocks_per_page = 1U << 31U; }) == errc::invalid_argument);
  CHECK(code_with([](auto& x) { x.blocks = 9; }) == errc::ok);
  CHECK(code_with([](auto& x) { x.blocks = 100; }) == errc::out_of_range);
  CHECK(code_with([](auto& x) { x.memories.push_back(gpu_memory_handle{}); }) == errc::unsupported);
  for (const auto* name : {"", "/", ".", "/..", "a/b", "/a/b", "//a"})
    CHECK(code_with([&](auto& x) {
            x.memories = {shared_memory_handle{name, memory_bytes}};
          }) == errc::invalid_argument);
  CHECK_FALSE(is_shared_memory_name(std::string_view("a\0b", 3)));
  CHECK_FALSE(is_shared_memory_name(std::string(300, 'a')));
  CHECK(is_shared_memory_name("/lmcache_kv_1_2"));
}

TEST_CASE("gpu remote cache: blocks in shared memory are gathered run by run and scattered to the given blocks",
          "[gpu]") {
  const auto bytes = counted_bytes(memory_bytes);
  const shared_memory memory(bytes);
  const auto layout = small_layout(memory.name());
  const auto cache = open_remote_cache(layout);
  REQUIRE(cache);
  std::vector<std::byte> page(32);
  // The second run of these is one piece, and the first is not.
  const std::vector<std::uint32_t> blocks{3, 4};
  std::vector moves{move_of(page, blocks)};
  REQUIRE((*cache)->gather(moves, "an event"));
  std::vector<std::byte> expected;
  for (const auto& run : layout.runs)
    for (const auto block : blocks)
      for (std::uint64_t i = 0; i < run.bytes; ++i)
        expected.push_back(bytes[run.offset + block * run.block_stride + i]);
  CHECK(page == expected);
  CHECK(moves[0].checksum == io::checksum_of(expected));

  const std::vector<std::uint32_t> others{7, null_block};
  moves = {move_of(page, others)};
  moves[0].checksum = io::checksum_of(expected);
  REQUIRE((*cache)->scatter(moves, {}));
  CHECK(moves[0].verdict == errc::ok);
  auto after = bytes;
  std::copy_n(expected.begin(), 10, after.begin() + 5 + 7 * 20);
  std::copy_n(expected.begin() + 20, 6, after.begin() + 300 + 7 * 6);
  CHECK(memory.read(memory_bytes) == after);

  // A page with another checksum is not written.
  page[3] ^= std::byte{1};
  moves[0].block = 0;
  REQUIRE((*cache)->scatter(moves, {}));
  CHECK(moves[0].verdict == errc::corrupt);
  CHECK(memory.read(memory_bytes) == after);

  // A block that does not exist is nothing.
  const std::vector<std::uint32_t> none{null_block, null_block};
  moves = {move_of(page, none)};
  REQUIRE((*cache)->gather(moves, {}));
  CHECK(page == std::vector<std::byte>(32));
}

TEST_CASE(
    "gpu remote cache: what another process writes to a page during a copy does not reach a cache in shared memory",
    "[gpu]") {
  constexpr std::size_t block = 8192;
  const auto bytes = counted_bytes(2 * block);
  const auto right = std::span(bytes).first(block);
  const shared_memory memory(bytes);
  remote_layout layout;
  layout.memories = {shared_memory_handle{memory.name(), bytes.size()}};
  layout.runs = {{0, 0, block, block}};
  layout.blocks = 2;
  const auto cache = open_remote_cache(layout);
  REQUIRE(cache);
  const test::corrupted_page page(block);
  int sound = 0;
  for (int i = 0; i < 2000 && sound < 300; ++i) {
    std::vector moves{block_move{0, page.data(), block}};
    REQUIRE((*cache)->gather(moves, {}));
    // The checksum is that of the block, and not of what is in the page by now.
    CHECK(moves[0].checksum == io::checksum_of(right));
    moves[0].block = 1;
    REQUIRE((*cache)->scatter(moves, {}));
    if (moves[0].verdict != errc::ok)
      continue;
    ++sound;
    REQUIRE(std::ranges::equal(std::span<const std::byte>(memory.read(2 * block)).subspan(block), right));
  }
  CHECK(sound > 0);
}

TEST_CASE("gpu remote cache: encoded pages of a cache in shared memory are those of other movers", "[gpu][encoding]") {
  std::mt19937_64 random(2);
  constexpr std::size_t block = 16384;
  const auto values = workload::make_values(workload::value_kind::normal, 4 * block / 2, random);
  const shared_memory memory(values);
  remote_layout layout;
  layout.memories = {shared_memory_handle{memory.name(), values.size()}};
  layout.runs = {{0, 0, block, block}};
  layout.blocks = 4;
  const auto cache = open_remote_cache(layout);
  REQUIRE(cache);
  std::vector<std::byte> page(block);
  std::vector moves{move_of(page, {2})};
  moves[0].encoding = page_encoding::bf16;
  REQUIRE((*cache)->gather(moves, {}));
  REQUIRE(moves[0].encoding == page_encoding::bf16);
  const auto stored = std::span(page).first(moves[0].stored_bytes());
  CHECK(moves[0].checksum == io::checksum_of(stored));
  std::vector<std::byte> decoded(block);
  REQUIRE(codec::decode(stored, decoded));
  CHECK(std::ranges::equal(decoded, std::span(values).subspan(2 * block, block)));
  moves[0].block = 0;
  REQUIRE((*cache)->scatter(moves, {}));
  CHECK(moves[0].verdict == errc::ok);
  auto after = values;
  std::ranges::copy(decoded, after.begin());
  CHECK(memory.read(values.size()) == after);
  page[0] ^= std::byte{1};
  moves[0].checksum = io::checksum_of(stored); // no encoder wrote it
  moves[0].block = 1;
  REQUIRE((*cache)->scatter(moves, {}));
  CHECK(moves[0].verdict == errc::corrupt);
  CHECK(memory.read(values.size()) == after);
}

TEST_CASE("gpu remote cache: shared memory that has shrunk makes the call fail", "[gpu]") {
  const shared_memory memory(counted_bytes(memory_bytes));
  const auto cache = open_remote_cache(small_layout(memory.name()));
  REQUIRE(cache);
  std::vector<std::byte> page(32);
  const std::vector<std::uint32_t> blocks{3, 4};
  std::vector moves{move_of(page, blocks)};
  memory.cut(100);
  CHECK((*cache)->gather(moves, {}).error().code == errc::out_of_range);
  CHECK((*cache)->scatter(moves, {}).error().code == errc::out_of_range);
  CHECK(open_remote_cache(small_layout(memory.name())).error().code == errc::out_of_range);
  memory.cut(memory_bytes);
  CHECK((*cache)->gather(moves, {}));

  const std::vector<std::uint32_t> far{3, 8};
  moves = {move_of(page, far)};
  CHECK((*cache)->gather(moves, {}).error().code == errc::out_of_range);
  const std::vector<std::uint32_t> one{3};
  moves = {move_of(page, one)};
  CHECK((*cache)->gather(moves, {}).error().code == errc::invalid_argument);
  std::vector<std::byte> small(31);
  moves = {move_of(small, blocks)};
  CHECK((*cache)->gather(moves, {}).error().code == errc::invalid_argument);
  CHECK(open_remote_cache(small_layout("/troupe-unit-absent")).error().code == errc::invalid_argument);
}

TEST_CASE("gpu remote cache: memory of a nonexistent GPU is refused", "[gpu]") {
  remote_layout layout;
  gpu_memory_handle handle;
  handle.bytes = 100;
  handle.device = "GPU-00000000-0000-0000-0000-000000000000";
  layout.memories = {handle};
  layout.runs = {{0, 0, 10, 10}};
  layout.blocks = 2;
  const auto cache = open_remote_cache(layout);
  REQUIRE_FALSE(cache);
  CHECK(cache.error().code == errc::unsupported);
}

TEST_CASE("gpu remote cache: the PyTorch reference count of memory is decremented when it is closed, and no other",
          "[gpu]") {
  constexpr std::size_t header = 64;
  constexpr std::size_t file_bytes = header + 10000 * sizeof(std::int64_t);
  std::vector<std::byte> bytes(file_bytes);
  for (std::size_t i = 0; i < 10000; ++i) {
    const std::int64_t one = i == 8 ? 0 : 1;
    std::memcpy(bytes.data() + header + i * sizeof one, &one, sizeof one);
  }
  const shared_memory file(bytes);
  const auto number = [&](std::size_t i) {
    const auto now = file.read(file_bytes);
    std::int64_t out = 0;
    std::memcpy(&out, now.data() + header + i * sizeof out, sizeof out);
    return out;
  };
  const shared_memory memory(counted_bytes(memory_bytes));
  auto layout = small_layout(memory.name());
  layout.counters = {{file.name(), 7},   {file.name(), 8}, {file.name(), 10000},
                     {memory.name(), 1}, {"/absent", 1},   {"../x", 1}};
  {
    const auto cache = open_remote_cache(layout);
    REQUIRE(cache);
    CHECK(number(7) == 1);
  }
  CHECK(number(7) == 0);
  CHECK(number(8) == 0);
  CHECK(number(6) == 1);
  CHECK(number(9999) == 1);
  CHECK(memory.read(memory_bytes) == counted_bytes(memory_bytes));
}

} // namespace gpu_remote_cache_test
