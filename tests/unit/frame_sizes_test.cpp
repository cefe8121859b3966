#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/io_worker/frame_sizes.hpp"
#include "actors/node/io_worker/frame_table.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <set>
#include <vector>

namespace frame_sizes_test {

namespace {

using namespace troupe;

constexpr std::uint64_t slot_bytes = 12288;
constexpr std::uint64_t encoded_bytes = 8192;
/// Two whole frames, or three for encoded pages.
constexpr std::uint64_t extent_bytes = 2 * slot_bytes;
constexpr timestamp start{std::chrono::hours(1)};

struct table {
  explicit table(const std::vector<frame_size>& sizes) {
    for (const auto size : sizes)
      add(size);
  }

  void add(frame_size size) {
    const auto n = static_cast<std::uint32_t>(added++);
    frames.add_extent({n, n * extent_bytes, std::span(memory).subspan(n * extent_bytes, extent_bytes), n}, size);
    CHECK(frames.check() == "");
  }
  static page_ref page(slot_number slot) { return {key_digest{slot, 7}, {slot, 1}}; }
  frame_number clean(slot_number slot, frame_size size) {
    const auto f = frames.take(page(slot), frame_state::reading, size);
    REQUIRE(f != no_frame);
    frames.end_read(f, true);
    frames.unpin(f);
    CHECK(frames.check() == "");
    return f;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(6 * extent_bytes);
  std::size_t added = 0;
  frame_table frames{slot_bytes, make_lru_policy, nullptr, frame_table::no_memory_slots, encoded_bytes};
};

frame_sizes::report report(std::uint32_t extents, std::optional<timestamp> oldest = {}, std::uint64_t free = 0) {
  return {extents, free, oldest};
}

} // namespace

TEST_CASE("frames: an extent has frames of one size, which do not overlap", "[frame_table]") {
  table t({frame_size::whole, frame_size::encoded, frame_size::encoded});
  CHECK(t.frames.size() == 8);
  CHECK(t.frames.size(frame_size::encoded) == 6);
  CHECK(t.frames.lasting() == 8);
  CHECK(t.frames.free(frame_size::whole) == 2);
  CHECK(t.frames.bytes() == 2 * slot_bytes + 6 * encoded_bytes);
  CHECK(t.frames.free_bytes(frame_size::encoded) == 2 * extent_bytes);
  std::set<std::uint64_t> used;
  slot_number slot = 0;
  for (const auto size : {frame_size::encoded, frame_size::whole})
    while (t.frames.free(size) > 0) {
      const auto f = t.clean(slot++, size);
      const auto bytes = size == frame_size::whole ? slot_bytes : encoded_bytes;
      CHECK(t.frames.size_of(f) == size);
      CHECK(t.frames.bytes(f).size() == bytes);
      CHECK(t.frames.bytes(f).data() == t.memory.data() + t.frames.offset(f));
      for (auto at = t.frames.offset(f); at < t.frames.offset(f) + bytes; at += 4096)
        CHECK(used.insert(at).second);
    }
  CHECK(slot == 8);
  CHECK(t.frames.resident_bytes() == t.frames.bytes());
}

TEST_CASE("frames: each size evicts its own pages", "[frame_table]") {
  table t({frame_size::whole, frame_size::encoded});
  for (slot_number slot = 0; slot < 3; ++slot)
    t.clean(slot, frame_size::encoded);
  t.clean(3, frame_size::whole);
  t.clean(4, frame_size::whole);
  // The oldest page has the other size.
  const auto f = t.clean(5, frame_size::whole);
  CHECK(t.frames.size_of(f) == frame_size::whole);
  CHECK(t.frames.in_slot(0) != no_frame);
  CHECK(t.frames.in_slot(3) == no_frame);
  t.clean(6, frame_size::encoded);
  CHECK(t.frames.in_slot(0) == no_frame);
  CHECK(t.frames.in_slot(4) != no_frame);
}

TEST_CASE("frames: an extent can be cut anew, and pages of the same size move out of it", "[frame_table]") {
  table t({frame_size::whole, frame_size::encoded, frame_size::encoded});
  std::vector<frame_number> pages;
  for (slot_number slot = 0; slot < 4; ++slot)
    pages.push_back(t.clean(slot, frame_size::encoded));
  std::ranges::fill(t.frames.bytes(pages[3]), std::byte{3});
  REQUIRE(t.frames.begin_emptying(frame_size::encoded));
  CHECK(t.frames.lasting(frame_size::encoded) == 3);
  for (auto f = t.frames.next_to_move(); f != no_frame; f = t.frames.next_to_move()) {
    if (t.frames.free(frame_size::encoded) == 0)
      REQUIRE(t.frames.evict(frame_size::encoded));
    else
      CHECK(t.frames.size_of(t.frames.move(f)) == frame_size::encoded);
    CHECK(t.frames.check() == "");
  }
  REQUIRE(t.frames.emptied());
  const auto memory = t.frames.take_emptied();
  CHECK(t.frames.check() == "");
  CHECK(t.frames.extents(frame_size::encoded) == 1);
  t.frames.add_extent(memory, frame_size::whole);
  CHECK(t.frames.check() == "");
  CHECK(t.frames.size() == 7);
  CHECK(t.frames.free(frame_size::whole) == 4);
  for (slot_number slot = 10; slot < 14; ++slot)
    CHECK(t.frames.bytes(t.clean(slot, frame_size::whole)).size() == slot_bytes);
  // And back.
  while (t.frames.count(frame_state::clean) > 0)
    t.frames.drop(t.frames.in_slot([&] {
      for (slot_number slot = 0;; ++slot)
        if (t.frames.in_slot(slot) != no_frame)
          return slot;
    }()));
  REQUIRE(t.frames.begin_emptying(frame_size::whole));
  REQUIRE(t.frames.emptied());
  t.frames.add_extent(t.frames.take_emptied(), frame_size::encoded);
  CHECK(t.frames.check() == "");
  CHECK(t.frames.size(frame_size::encoded) == 6);
}

TEST_CASE("frames: an extent without pages is cut anew at once, but for the last one with whole frames",
          "[frame_table]") {
  table t({frame_size::whole, frame_size::whole, frame_size::whole});
  t.clean(1, frame_size::whole);
  REQUIRE(t.frames.recut_for(frame_size::encoded));
  CHECK(t.frames.check() == "");
  CHECK(t.frames.size(frame_size::encoded) == 3);
  CHECK(t.frames.in_slot(1) != no_frame);
  REQUIRE(t.frames.recut_for(frame_size::encoded));
  CHECK_FALSE(t.frames.recut_for(frame_size::encoded));
  CHECK(t.frames.extents(frame_size::whole) == 1);
  // An extent that is being emptied is not cut anew, nor one with a page.
  t.clean(2, frame_size::encoded);
  REQUIRE(t.frames.begin_emptying(frame_size::encoded));
  CHECK_FALSE(t.frames.recut_for(frame_size::whole));
  t.frames.stop_emptying();
  REQUIRE(t.frames.recut_for(frame_size::whole));
  CHECK_FALSE(t.frames.recut_for(frame_size::whole));
  CHECK(t.frames.in_slot(2) != no_frame);
  CHECK(t.frames.check() == "");
  CHECK(t.frames.extents() == 3);
}

TEST_CASE("frame sizes: a stored page is read into a frame of the size that it needs", "[frame_sizes]") {
  frame_sizes x(8, true);
  CHECK(x.of_stored(1) == frame_size::whole);
  CHECK_FALSE(x.is_known(1));
  x.note(1, frame_size::encoded);
  CHECK(x.is_known(1));
  CHECK(x.of_stored(1) == frame_size::encoded);
  // Of others, the size of the last page is assumed.
  CHECK(x.of_stored(2) == frame_size::encoded);
  CHECK(x.usual() == frame_size::encoded);
  x.note(3, frame_size::whole);
  CHECK(x.of_stored(2) == frame_size::whole);
  CHECK(x.of_stored(1) == frame_size::encoded);
}

TEST_CASE("frame sizes: where no page can be encoded, all frames are whole", "[frame_sizes]") {
  frame_sizes x(8, false);
  x.note(1, frame_size::encoded);
  x.set_wished(frame_size::encoded);
  CHECK(x.of_stored(1) == frame_size::whole);
  CHECK_FALSE(x.is_known(1));
  CHECK(x.of_new_extent(true, true) == frame_size::whole);
  x.is_short(frame_size::encoded, start);
  CHECK_FALSE(x.competes(start));
}

TEST_CASE("frame sizes: the first extent is a whole one", "[frame_sizes]") {
  frame_sizes x(8, true);
  x.set_wished(frame_size::encoded);
  x.note(1, frame_size::encoded);
  CHECK(x.of_new_extent(true, false) == frame_size::whole);
  CHECK(x.of_new_extent(false, false) == frame_size::whole);
  CHECK(x.of_new_extent(true, true) == frame_size::encoded);
  CHECK(x.of_new_extent(false, true) == frame_size::encoded);
  x.set_wished(frame_size::whole);
  CHECK(x.of_new_extent(true, true) == frame_size::whole);
  CHECK(x.of_new_extent(false, true) == frame_size::encoded);
}

TEST_CASE("frame sizes: an extent goes to the size that is short, if the pages of the other one are clearly older",
          "[frame_sizes]") {
  const auto short_of = GENERATE(frame_size::whole, frame_size::encoded);
  const auto other = short_of == frame_size::whole ? frame_size::encoded : frame_size::whole;
  frame_sizes x(8, true);
  auto now = start;
  const auto reported = [&](duration own, duration others, std::uint64_t free_of_other = 0) {
    std::array<frame_sizes::report, 2> both{};
    both[static_cast<std::size_t>(short_of)] = report(2, now - own);
    both[static_cast<std::size_t>(other)] = report(3, now - others, free_of_other);
    x.reported(both, now);
    CHECK(x.check() == "");
    return x.take_order(now);
  };
  CHECK_FALSE(x.competes(now));
  reported(std::chrono::seconds(1), std::chrono::hours(1));
  now += std::chrono::seconds(5);
  CHECK_FALSE(reported(std::chrono::seconds(1), std::chrono::hours(1)));
  x.is_short(short_of, now);
  CHECK(x.competes(now));
  CHECK_FALSE(reported(std::chrono::seconds(10), std::chrono::seconds(15)));
  const auto order = GENERATE(true, false) ? reported(std::chrono::seconds(10), std::chrono::seconds(30))
                                           : reported(std::chrono::seconds(10), std::chrono::seconds(1), 1);
  REQUIRE(order == other);
  // Not twice.
  CHECK_FALSE(reported(std::chrono::seconds(10), std::chrono::seconds(30)));
  SECTION("it is given") {
    CHECK(x.given(4, now) == short_of);
  }
  SECTION("it is refused, and asked for again a second later") {
    x.refused(now);
    CHECK_FALSE(reported(std::chrono::seconds(10), std::chrono::seconds(30)));
    CHECK_FALSE(x.competes(now));
    now += std::chrono::seconds(1);
    CHECK(x.competes(now));
    CHECK(reported(std::chrono::seconds(10), std::chrono::seconds(30)) == other);
  }
  SECTION("it is not needed any more, and stays") {
    now += std::chrono::seconds(10);
    CHECK_FALSE(x.competes(now));
    CHECK(x.given(4, now) == other);
  }
}

} // namespace frame_sizes_test
