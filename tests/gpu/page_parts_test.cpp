#include "gpu/cuda/page_parts.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

namespace page_parts_test {

/// Which pages cross the bus together; needs no GPU.

namespace {

using namespace troupe;
using namespace troupe::cuda;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;

/// Pages at addresses that are never touched, and the memory that is locked for them.
struct list_of_pages {
  std::vector<block_move> moves;
  std::vector<locked_range> locked;
  std::vector<page_place> places;

  /// One behind the other, `gap` bytes between them, in locked memory or not.
  list_of_pages(std::size_t pages, std::uint64_t page_bytes, std::uint64_t gap = 0, bool lock = true) : moves(pages) {
    auto* const begin = reinterpret_cast<std::byte*>(std::uint64_t{1} << 40U);
    for (std::size_t i = 0; i < pages; ++i) {
      moves[i].page = begin + i * (page_bytes + gap);
      moves[i].page_bytes = page_bytes;
      moves[i].spare_before = gap;
    }
    if (lock)
      locked.push_back({begin, pages * (page_bytes + gap), begin + (std::uint64_t{1} << 41U)});
    places = locate_pages(moves, locked);
  }

  page_list view() const { return {moves, places}; }
};

std::vector<page_part> parts_of(move_direction direction, const part_limits& limits, const page_list& pages) {
  std::vector<page_part> out;
  part_cutter cutter(direction, limits, pages);
  while (!cutter.done())
    out.push_back(cutter.next());
  return out;
}

std::vector<std::uint64_t> sizes_of(const std::vector<page_part>& parts, std::uint64_t page_bytes) {
  std::vector<std::uint64_t> out;
  for (const auto& part : parts)
    out.push_back(part.pages * page_bytes);
  return out;
}

part_limits limits_for(std::uint64_t page_bytes) {
  return {page_bytes, 32 * mebibyte, 480, 4 * mebibyte};
}

} // namespace

TEST_CASE("page parts: a gather begins with a small part to start the PCIe transfer early", "[plan]") {
  const list_of_pages list(256, mebibyte / 4);
  const auto parts = parts_of(move_direction::gather, limits_for(mebibyte / 4), list.view());
  CHECK(sizes_of(parts, mebibyte / 4) == std::vector<std::uint64_t>{3 * mebibyte, 32 * mebibyte, 29 * mebibyte});
  CHECK(std::none_of(parts.begin(), parts.end(), [](const page_part& part) { return part.direct; }));
}

TEST_CASE("page parts: a scatter ends with a short copy and pages that a kernel reads directly", "[plan]") {
  const list_of_pages list(256, mebibyte / 4);
  const auto parts = parts_of(move_direction::scatter, limits_for(mebibyte / 4), list.view());
  CHECK(sizes_of(parts, mebibyte / 4) ==
        std::vector<std::uint64_t>{32 * mebibyte, 28 * mebibyte, 3 * mebibyte, mebibyte});
  CHECK(parts.back().direct);
  CHECK(std::none_of(parts.begin(), parts.end() - 1, [](const page_part& part) { return part.direct; }));

  // While others copy, a kernel that fetches would hold them up.
  auto beside_others = limits_for(mebibyte / 4);
  beside_others.bytes_ahead = 1;
  const auto copied = parts_of(move_direction::scatter, beside_others, list.view());
  CHECK(sizes_of(copied, mebibyte / 4) == std::vector<std::uint64_t>{32 * mebibyte, 29 * mebibyte, 3 * mebibyte});
  CHECK(std::none_of(copied.begin(), copied.end(), [](const page_part& part) { return part.direct; }));
}

TEST_CASE("page parts: a short list is one part while other copies overlap with it", "[plan]") {
  const list_of_pages list(64, mebibyte / 4);
  for (const auto direction : {move_direction::gather, move_direction::scatter}) {
    auto limits = limits_for(mebibyte / 4);
    limits.bytes_ahead = 4 * mebibyte;
    CHECK(sizes_of(parts_of(direction, limits, list.view()), mebibyte / 4) ==
          std::vector<std::uint64_t>{16 * mebibyte});
    // Too little of others, or too much of its own.
    CHECK(parts_of(direction, limits, list_of_pages(65, mebibyte / 4).view()).size() == 2);
    limits.bytes_ahead = 4 * mebibyte - 1;
    CHECK(parts_of(direction, limits, list.view()).size() == 2);
    // Staging memory has room for half of it.
    limits = {mebibyte / 4, 8 * mebibyte, 480, 4 * mebibyte, 16 * mebibyte};
    CHECK(parts_of(direction, limits, list.view()).size() == 2);
  }
}

TEST_CASE("page parts: a kernel accesses only pages that are locked and aligned", "[plan]") {
  constexpr auto page = mebibyte / 4;
  const auto any_direct = [](const std::vector<page_part>& parts) {
    return std::any_of(parts.begin(), parts.end(), [](const page_part& part) { return part.direct; });
  };
  for (const auto direction : {move_direction::gather, move_direction::scatter}) {
    // Few pages: by kernels alone.
    const list_of_pages few(16, page);
    const auto parts = parts_of(direction, limits_for(page), few.view());
    REQUIRE(parts.size() == 1);
    CHECK(parts.front().direct);
    CHECK_FALSE(any_direct(parts_of(direction, limits_for(page), list_of_pages(16, page, 0, false).view())));
    CHECK_FALSE(any_direct(parts_of(direction, limits_for(page), list_of_pages(256, page, 0, false).view())));
    CHECK_FALSE(any_direct(parts_of(direction, limits_for(page + 8), list_of_pages(12, page + 8).view())));
    auto shifted = list_of_pages(16, page);
    for (auto& move : shifted.moves)
      move.page += 8;
    shifted.locked.front().bytes += 8;
    shifted.places = locate_pages(shifted.moves, shifted.locked);
    CHECK_FALSE(any_direct(parts_of(direction, limits_for(page), shifted.view())));
  }
  // The last large page is copied like the others: fetching it by a kernel would delay the end.
  CHECK_FALSE(
      any_direct(parts_of(move_direction::scatter, limits_for(8 * mebibyte), list_of_pages(8, 8 * mebibyte).view())));
}

TEST_CASE("page parts: gaps between pages are copied only where that is allowed", "[plan]") {
  constexpr auto page = mebibyte / 4;
  constexpr std::uint64_t gap = 4096;
  const auto joined = [&](move_direction direction, const list_of_pages& list, std::uint64_t ahead = 0) {
    const auto parts = parts_of(direction, {page, 32 * mebibyte, 480, 0, ahead}, list.view());
    std::size_t out = 0;
    for (const auto& part : parts)
      out += static_cast<std::size_t>(std::count(part.joined.begin(), part.joined.end(), true));
    return out + parts.size();
  };
  for (const auto direction : {move_direction::gather, move_direction::scatter}) {
    CHECK(joined(direction, list_of_pages(40, page)) == 40);
    CHECK(joined(direction, list_of_pages(40, page, gap)) == 40);
    // Others are on the bus while another copy is begun.
    CHECK(joined(direction, list_of_pages(40, page), 4 * mebibyte) == 40);
    CHECK(joined(direction, list_of_pages(40, page, gap), 4 * mebibyte) == 1);
    // More bytes than the bus moves while it begins another copy.
    CHECK(joined(direction, list_of_pages(40, page, 65536)) < 10);
    // Backwards.
    list_of_pages reversed(40, page, gap);
    std::reverse(reversed.moves.begin(), reversed.moves.end());
    std::reverse(reversed.places.begin(), reversed.places.end());
    CHECK(joined(direction, reversed) < 10);
  }
  // The bytes between may not be overwritten without permission.
  list_of_pages kept(40, page, gap);
  for (auto& move : kept.moves)
    move.spare_before = gap - 1;
  CHECK(joined(move_direction::gather, kept) < 10);
  CHECK(joined(move_direction::scatter, kept) == 40);
  // Whether there is memory between is known only inside one locked range.
  list_of_pages pieces(40, page, gap);
  const auto whole = pieces.locked.front();
  pieces.locked.clear();
  for (std::size_t i = 0; i < 40; ++i)
    pieces.locked.push_back({whole.host + i * (page + gap), page, whole.device + i * (page + gap)});
  pieces.places = locate_pages(pieces.moves, pieces.locked);
  CHECK(joined(move_direction::scatter, pieces) < 10);
  CHECK(joined(move_direction::scatter, list_of_pages(40, page, gap, false)) < 10);
}

TEST_CASE("page parts: pages are found in the locked range that holds all of them", "[plan]") {
  list_of_pages list(4, 4096);
  auto* const begin = list.locked.front().host;
  auto* const device = list.locked.front().device;
  list.locked = {{begin, 4096, device}, {begin + 2 * 4096, 4096 + 100, device + 9 * 4096}};
  const auto places = locate_pages(list.moves, list.locked);
  CHECK(places[0].device == device);
  CHECK(places[0].range == list.locked.data());
  CHECK(places[1].device == nullptr);
  CHECK(places[2].device == device + 9 * 4096);
  CHECK(places[2].range == list.locked.data() + 1);
  CHECK(places[3].device == nullptr);
}

TEST_CASE("page parts: parts contain each page once in order and fit into the staging buffer", "[plan]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](std::uint64_t least, std::uint64_t most) {
    return std::uniform_int_distribution<std::uint64_t>(least, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const auto page = draw(0, 1) == 0 ? draw(1, 5000) : 16 * draw(1, 400'000);
    list_of_pages list(draw(1, 600), page, draw(0, 2) == 0 ? 16 * draw(0, 1200) : 0, draw(0, 3) != 0);
    if (draw(0, 2) == 0) {
      std::shuffle(list.moves.begin(), list.moves.end(), random);
      list.places = locate_pages(list.moves, list.locked);
    }
    const part_limits limits{page, std::max<std::uint64_t>(page + 256, draw(1, 40) * mebibyte), draw(1, 480),
                             draw(0, 8) * mebibyte, draw(0, 8) * mebibyte};
    for (const auto direction : {move_direction::gather, move_direction::scatter}) {
      std::size_t next = 0;
      for (const auto& part : parts_of(direction, limits, list.view())) {
        REQUIRE(part.first == next);
        REQUIRE(part.pages >= 1);
        REQUIRE(part.pages <= limits.pages);
        REQUIRE(part.offsets.size() == part.pages);
        REQUIRE_FALSE(part.joined[0]);
        for (std::size_t i = 0; i < part.pages; ++i) {
          REQUIRE(part.offsets[i] % 16 == 0);
          REQUIRE(part.offsets[i] + (page + 15) / 16 * 16 <= limits.staging_bytes);
          if (i == 0)
            continue;
          REQUIRE(part.offsets[i] >= part.offsets[i - 1] + page);
          const auto distance = list.moves[next + i].page - list.moves[next + i - 1].page;
          if (part.joined[i])
            REQUIRE(part.offsets[i] - part.offsets[i - 1] == static_cast<std::uint64_t>(distance));
        }
        next += part.pages;
      }
      REQUIRE(next == list.moves.size());
    }
  }
}

TEST_CASE("page parts: moves of each encoding are made together, and those that have none after all with the others",
          "[gpu]") {
  struct call {
    page_encoding encoding;
    std::vector<std::uint32_t> blocks;

    bool operator==(const call&) const = default;
  };
  constexpr auto raw = page_encoding::raw;
  constexpr auto bf16 = page_encoding::bf16;
  std::vector<call> calls;
  std::vector<block_move> moves;
  const auto play = [&](const std::vector<page_encoding>& wanted, std::vector<std::uint32_t> without_one,
                        std::optional<page_encoding> failing = {}) {
    calls.clear();
    moves.assign(wanted.size(), {});
    for (std::uint32_t i = 0; i < moves.size(); ++i) {
      moves[i].block = i;
      moves[i].encoding = wanted[i];
    }
    return by_encoding(moves, [&](std::span<block_move> some, page_encoding encoding) -> result<void> {
      auto& made = calls.emplace_back(call{encoding, {}});
      for (auto& move : some) {
        CHECK(move.encoding == encoding);
        made.blocks.push_back(move.block);
        move.checksum = io::page_checksum{move.block, encoding == bf16 ? 1U : 0U};
        if (std::ranges::find(without_one, move.block) != without_one.end())
          move.encoding = raw;
      }
      return encoding == failing ? result<void>(fail(errc::device_error, "a fault")) : result<void>();
    });
  };
  CHECK(play({}, {}));
  CHECK(calls == std::vector<call>{{raw, {}}});
  CHECK(play({raw, raw}, {}));
  CHECK(calls == std::vector<call>{{raw, {0, 1}}});
  CHECK(play({bf16, bf16}, {}));
  CHECK(calls == std::vector<call>{{bf16, {0, 1}}});
  CHECK(play({bf16, bf16, bf16}, {1}));
  CHECK(calls == std::vector<call>{{bf16, {0, 1, 2}}, {raw, {1}}});
  CHECK(play({bf16, raw, bf16, raw}, {2}));
  CHECK(calls == std::vector<call>{{bf16, {0, 2}}, {raw, {1, 2, 3}}});
  // What became of each move is in its place.
  CHECK(moves[0].encoding == bf16);
  CHECK(moves[2].encoding == raw);
  for (std::uint32_t i = 0; i < moves.size(); ++i)
    CHECK(moves[i].checksum == io::page_checksum{i, i == 0 ? 1U : 0U});
  CHECK(play({bf16, raw}, {}, bf16).error().code == errc::device_error);
  CHECK(calls == std::vector<call>{{bf16, {0}}});
  CHECK(play({bf16, raw}, {}, raw).error().code == errc::device_error);
  CHECK(calls.size() == 2);
}

TEST_CASE("page parts: moves with room for an encoded page only are never made as they are", "[gpu]") {
  std::vector<block_move> moves(4);
  std::vector<std::uint32_t> made;
  for (std::uint32_t i = 0; i < moves.size(); ++i) {
    moves[i].block = i;
    moves[i].only_encoded = i != 2;
    moves[i].encoding = i == 3 ? page_encoding::raw : page_encoding::bf16;
  }
  CHECK(by_encoding(moves, [&](std::span<block_move> some, page_encoding encoding) -> result<void> {
    for (auto& move : some) {
      if (encoding == page_encoding::raw)
        made.push_back(move.block);
      else if (move.block > 0)
        move.encoding = page_encoding::raw;
    }
    return {};
  }));
  CHECK(made == std::vector<std::uint32_t>{2});
  CHECK(moves[0].verdict == errc::ok);
  CHECK(moves[1].verdict == errc::unsupported);
  CHECK(moves[2].verdict == errc::ok);
  CHECK(moves[3].verdict == errc::unsupported);
}

TEST_CASE("page parts: a page is in a locked range if the bytes that it is stored in are", "[gpu]") {
  std::vector<std::byte> memory(131072);
  std::byte other{};
  const std::vector<locked_range> locked{{memory.data(), memory.size(), &other}};
  std::vector<block_move> moves(2);
  for (auto& move : moves) {
    move.page_bytes = 65536;
    move.page = memory.data() + memory.size() - codec::stored_bytes(page_encoding::bf16, move.page_bytes);
  }
  moves[0].encoding = page_encoding::bf16;
  const auto places = locate_pages(moves, locked);
  CHECK(places[0].range == locked.data());
  CHECK(places[1].range == nullptr);
}

} // namespace page_parts_test
