#include "actors/cluster/pages/staging_buffer.hpp"
#include "actors/cluster/pages/staging_mover.hpp"
#include "gpu/host_page_mover.hpp"
#include "io/page_checksum.hpp"
#include "tests/catch.hpp"
#include "tests/unit/corrupted_page.hpp"
#include "workload/kv_values/kv_values.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace cluster_staging_test {

using namespace troupe;
using namespace troupe::cluster;

namespace {

using bytes = std::vector<std::byte>;

bytes numbered_bytes(std::size_t count, std::size_t from = 1) {
  bytes out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<std::byte>((i + from) * 167 >> (i % 5));
  return out;
}

} // namespace

TEST_CASE("staging buffer: a page passes through unchanged, with any layers and either mover", "[cluster]") {
  // The sizes are a part of a copy unit, a whole unit, and more than one.
  kv_geometry geometry{2, 2, 3, GENERATE(8U, 128U, 200U), 2, 16, {}};
  if (GENERATE(false, true))
    geometry.further.push_back({3, {1, 1, 20, 1}});
  const auto memory = std::make_shared<staging_buffer>(geometry, 5);
  REQUIRE(validate(memory->view()));
  const auto plain = make_host_page_mover(memory->view());
  REQUIRE(plain);
  const auto own = make_staging_mover(memory);
  const bool in_by_own = GENERATE(false, true);
  const bool out_by_own = GENERATE(false, true);
  auto& first = in_by_own ? *own : **plain;
  auto& second = out_by_own ? *own : **plain;
  const auto size = geometry.page_bytes();
  // Also where nothing is aligned.
  const std::size_t shift = GENERATE(0U, 3U);
  for (std::uint32_t block = 0; block < 5; ++block) {
    auto from = numbered_bytes(size, block);
    bytes to(size + shift + 1, std::byte{0xa5});
    std::vector<block_move> in{{block, from.data(), size}};
    in[0].checksum = io::checksum_of(from);
    REQUIRE(first.scatter(in));
    CHECK(in[0].verdict == errc::ok);
    // A block is a page, in one piece.
    CHECK(std::memcmp(memory->blocks().data() + block * size, from.data(), size) == 0);
    std::vector<block_move> out{{block, to.data() + shift, size}};
    REQUIRE(second.gather(out));
    CHECK(out[0].verdict == errc::ok);
    CHECK(out[0].checksum == io::checksum_of(from));
    CHECK(std::memcmp(to.data() + shift, from.data(), size) == 0);
    CHECK(to.back() == std::byte{0xa5});
  }
}

TEST_CASE("staging buffer: an unexpected page is corrupt, and only that one", "[cluster]") {
  const kv_geometry geometry{2, 2, 3, 128, 2, 16, {}};
  const auto memory = std::make_shared<staging_buffer>(geometry, 5);
  const auto mover = make_staging_mover(memory);
  const auto size = geometry.page_bytes();
  std::vector<bytes> pages{numbered_bytes(size, 1), numbered_bytes(size, 2), numbered_bytes(size, 3)};
  std::vector<block_move> moves;
  for (std::uint32_t i = 0; i < 3; ++i) {
    moves.push_back({i, pages[i].data(), size});
    moves[i].checksum = io::checksum_of(pages[i]);
  }
  const std::size_t where = GENERATE_COPY(std::size_t{0}, size / 2, size - 1);
  pages[1][where] ^= std::byte{1};
  REQUIRE(mover->scatter(moves));
  CHECK(moves[0].verdict == errc::ok);
  CHECK(moves[1].verdict == errc::corrupt);
  CHECK(moves[2].verdict == errc::ok);
  CHECK(std::memcmp(memory->blocks().data() + 2 * size, pages[2].data(), size) == 0);
  // Without an expected checksum every page is valid.
  moves[1].checksum.reset();
  REQUIRE(mover->scatter(moves));
  CHECK(moves[1].verdict == errc::ok);
  CHECK_FALSE(moves[1].checksum);
}

TEST_CASE("staging buffer: a list with an invalid entry is refused as a whole", "[cluster]") {
  const kv_geometry geometry{1, 2, 1, 8, 2, 4, {}};
  const auto memory = std::make_shared<staging_buffer>(geometry, 5);
  std::memset(memory->blocks().data(), 7, memory->blocks().size());
  const auto mover = make_staging_mover(memory);
  auto page = numbered_bytes(geometry.page_bytes());
  std::vector<block_move> moves{{0, page.data(), page.size()}, {5, page.data(), page.size()}};
  CHECK(mover->scatter(moves).error().code == errc::out_of_range);
  CHECK(mover->gather(moves).error().code == errc::out_of_range);
  moves[1] = {1, page.data(), page.size() - 1};
  CHECK(mover->scatter(moves).error().code == errc::invalid_argument);
  CHECK(memory->blocks().front() == std::byte{7});
  moves[1] = {1, page.data(), page.size()};
  int event = 0;
  CHECK(mover->gather(moves, {&event}).error().code == errc::unsupported);
  // Blocks that do not exist are of engines' caches; here there is none for a page to be in.
  moves[1].block = null_block;
  REQUIRE(mover->scatter(moves));
  CHECK(moves[0].verdict == errc::ok);
  CHECK(moves[1].verdict == errc::out_of_range);
  REQUIRE(mover->gather(moves));
  CHECK(moves[1].verdict == errc::out_of_range);
}

TEST_CASE("staging buffer: a page lands in the target frame that stands in for a block, and the block stays unchanged",
          "[cluster]") {
  // The sizes are a part of a copy unit, a whole unit, and more than one.
  const kv_geometry geometry{2, 2, 3, GENERATE(8U, 128U, 200U), 2, 16, {}};
  const auto memory = std::make_shared<staging_buffer>(geometry, 5);
  std::memset(memory->blocks().data(), 7, memory->blocks().size());
  const auto mover = make_staging_mover(memory);
  const auto size = geometry.page_bytes();
  const std::size_t shift = GENERATE(0U, 3U);
  bytes frame(size + shift + 1, std::byte{0xa5});
  const auto target = std::make_shared<target_frame>(target_frame{frame.data() + shift});
  memory->redirect(2, target);
  std::vector<bytes> pages{numbered_bytes(size, 1), numbered_bytes(size, 2)};
  std::vector<block_move> moves{{2, pages[0].data(), size}, {3, pages[1].data(), size}};
  const auto sum = io::checksum_of(pages[0]);
  moves[0].checksum = sum;
  SECTION("the whole page") {
    REQUIRE(mover->scatter(moves));
    CHECK(moves[0].verdict == errc::ok);
    CHECK(target->arrived == io::stored_payload{page_encoding::raw, size, sum});
    CHECK(std::memcmp(frame.data() + shift, pages[0].data(), size) == 0);
    CHECK(frame.back() == std::byte{0xa5});
  }
  SECTION("an unexpected page") {
    pages[0][GENERATE_COPY(std::size_t{0}, size / 2, size - 1)] ^= std::byte{1};
    REQUIRE(mover->scatter(moves));
    CHECK(moves[0].verdict == errc::corrupt);
    CHECK_FALSE(target->arrived);
  }
  CHECK(memory->blocks()[2 * size] == std::byte{7});
  CHECK(std::memcmp(memory->blocks().data() + 3 * size, pages[1].data(), size) == 0);
  // The block gets its own memory again.
  memory->redirect(2, nullptr);
  CHECK_FALSE(memory->target(2));
  moves[0].checksum.reset();
  REQUIRE(mover->scatter(moves));
  CHECK(std::memcmp(memory->blocks().data() + 2 * size, pages[0].data(), size) == 0);
}

TEST_CASE("staging buffer: an encoded page lands in a frame as it is, and is decoded into a block",
          "[cluster][encoding]") {
  const kv_geometry geometry{2, 2, 3, 128, 2, 16, {}};
  const auto memory = std::make_shared<staging_buffer>(geometry, 3);
  const auto mover = make_staging_mover(memory);
  const auto size = geometry.page_bytes();
  std::mt19937_64 random(5);
  const auto values = workload::make_values(workload::value_kind::normal, size / 2, random);
  bytes page(size, std::byte{0x5a});
  const auto stored = codec::stored_bytes(page_encoding::bf16, size);
  REQUIRE(codec::encode(values, std::span(page).first(stored)) == codec::outcome::encoded);
  const auto sum = io::checksum_of(std::span(page).first(stored));
  bytes frame(size, std::byte{0xa5});
  const auto target = std::make_shared<target_frame>(target_frame{frame.data()});
  memory->redirect(0, target);
  std::vector<block_move> moves{{0, page.data(), size}, {1, page.data(), size}};
  for (auto& move : moves) {
    move.encoding = page_encoding::bf16;
    move.checksum = sum;
  }
  REQUIRE(mover->scatter(moves));
  CHECK(moves[0].verdict == errc::ok);
  CHECK(moves[1].verdict == errc::ok);
  CHECK(target->arrived == io::stored_payload{page_encoding::bf16, stored, sum});
  CHECK(std::memcmp(frame.data(), page.data(), stored) == 0);
  CHECK(frame[stored] == std::byte{0xa5});
  CHECK(std::memcmp(memory->blocks().data() + size, values.data(), size) == 0);
  // A block is sent as it is, whatever was wanted.
  bytes sent(size);
  std::vector<block_move> out{{1, sent.data(), size}};
  out[0].encoding = page_encoding::bf16;
  REQUIRE(mover->gather(out));
  CHECK(out[0].encoding == page_encoding::raw);
  CHECK(out[0].checksum == io::checksum_of(values));
  CHECK(sent == values);
  page[0] ^= std::byte{1};
  moves[0].checksum = moves[1].checksum = io::checksum_of(std::span(page).first(stored));
  moves[1].block = 2;
  REQUIRE(mover->scatter(moves));
  CHECK(moves[1].verdict == errc::corrupt); // no encoder wrote it
}

TEST_CASE("staging buffer: a page that is overwritten while it lands is never accepted as another one", "[cluster]") {
  const kv_geometry geometry{8, 2, 4, 64, 2, 16, {}}; // 128 KiB
  const auto memory = std::make_shared<staging_buffer>(geometry, 2);
  const auto mover = make_staging_mover(memory);
  const auto size = geometry.page_bytes();
  const auto right = numbered_bytes(size);
  std::memcpy(memory->blocks().data(), right.data(), size);
  bytes frame(size);
  int sound = 0;
  const test::corrupted_page page(size);
  for (int i = 0; i < 2000 && sound < 300; ++i) {
    const auto target = std::make_shared<target_frame>(target_frame{frame.data()});
    memory->redirect(1, target);
    std::array<block_move, 1> move{{{0, page.data(), size}}};
    REQUIRE(mover->gather(move));
    move[0].block = 1;
    REQUIRE(mover->scatter(move));
    CHECK(target->arrived.has_value() == (move[0].verdict == errc::ok));
    if (move[0].verdict != errc::ok)
      continue;
    // The bytes that were verified are those that were copied, as the source is read once.
    CHECK(target->arrived->checksum == io::checksum_of(right));
    CHECK(frame == right);
    ++sound;
  }
  CHECK(sound > 0);
}

TEST_CASE("staging buffer: a page that is overwritten during a copy is whole or corrupt, in both directions",
          "[cluster]") {
  const kv_geometry geometry{8, 2, 4, 64, 2, 16, {}}; // 128 KiB
  const auto memory = std::make_shared<staging_buffer>(geometry, 2);
  const auto mover = make_staging_mover(memory);
  const auto size = geometry.page_bytes();
  const auto right = numbered_bytes(size);
  std::memcpy(memory->blocks().data(), right.data(), size);
  test::check_while_corrupted_on(*mover, right,
                                 [&] { return std::memcmp(memory->blocks().data() + size, right.data(), size) == 0; });
}

TEST_CASE("staging buffer: it lives as long as its mover", "[cluster]") {
  auto memory = std::make_shared<staging_buffer>(kv_geometry{1, 2, 1, 8, 2, 4, {}}, 2);
  const std::weak_ptr<staging_buffer> is_there = memory;
  auto mover = make_staging_mover(std::move(memory));
  CHECK_FALSE(is_there.expired());
  mover.reset();
  CHECK(is_there.expired());
}

TEST_CASE("staging buffer: several pages are copied at once on many cores, and no more with many ranks", "[cluster]") {
  CHECK(calls_for(0, 1) == 1); // not known
  CHECK(calls_for(2, 1) == 2);
  CHECK(calls_for(2, 4) == 1);
  CHECK(calls_for(8, 2) == 4);
  CHECK(calls_for(128, 1) == 8);
  CHECK(calls_for(128, 32) == 4);
  CHECK(calls_for(16, 8) == 2);
  CHECK(calls_for(16, 0) == 8);
  const auto memory = std::make_shared<staging_buffer>(kv_geometry{1, 2, 1, 8, 2, 4, {}}, 2);
  const auto mover = make_staging_mover(memory, {0, 3});
  CHECK(mover->calls_at_once(move_direction::gather) == 1);
  CHECK(mover->calls_at_once(move_direction::scatter) == 3);
}

TEST_CASE("staging buffer: concurrent transfers from many threads are correct", "[cluster]") {
  const kv_geometry geometry{2, 2, 3, 128, 2, 16, {}};
  constexpr std::uint32_t threads = 4;
  const auto memory = std::make_shared<staging_buffer>(geometry, 2 * threads);
  const auto mover = make_staging_mover(memory, {threads, threads});
  const auto size = geometry.page_bytes();
  std::vector<int> wrong(threads);
  std::vector<std::thread> all;
  for (std::uint32_t n = 0; n < threads; ++n)
    all.emplace_back([&, n] {
      for (std::uint32_t i = 0; i < 100; ++i) {
        auto page = numbered_bytes(size, n * 100 + i);
        bytes back(size);
        const auto block = 2 * n + i % 2;
        std::array<block_move, 1> in{{{block, page.data(), size}}};
        in[0].checksum = io::checksum_of(page);
        std::array<block_move, 1> out{{{block, back.data(), size}}};
        const bool done = mover->scatter(in) && mover->gather(out);
        wrong[n] += done && back == page && out[0].checksum == io::checksum_of(page) ? 0 : 1;
      }
    });
  for (auto& x : all)
    x.join();
  CHECK(wrong == std::vector<int>(threads));
}

TEST_CASE("staging buffer: it has as many blocks as fit and at least four", "[cluster]") {
  CHECK(staging_blocks(1000, 100) == 10);
  CHECK(staging_blocks(10, 100) == 4);
}

TEST_CASE("staging buffer: each block is taken once", "[cluster]") {
  block_free_list free_list(4);
  const auto some = free_list.take(3);
  CHECK(some == std::vector<std::uint32_t>{2, 1, 0});
  CHECK(free_list.free() == 1);
  free_list.give_back(some);
  CHECK(free_list.free() == 4);
}

} // namespace cluster_staging_test
