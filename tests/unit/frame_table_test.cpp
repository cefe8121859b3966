#include "actors/node/eviction/lru_policy.hpp"
#include "actors/node/io_worker/frame_table.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

namespace frame_table_test {

namespace {

using namespace troupe;

constexpr std::uint64_t slot_bytes = 8192;

/// A table with extents of three frames each, and a rest that is too small for one.
struct table {
  explicit table(std::size_t extents) {
    for (std::size_t i = 0; i < extents; ++i)
      frames.add_extent({static_cast<std::uint32_t>(i), i * extent_bytes,
                         std::span(memory).subspan(i * extent_bytes, extent_bytes),
                         static_cast<std::uint32_t>(40 + i)});
  }

  static constexpr std::uint64_t extent_bytes = 3 * slot_bytes + 4096;
  std::vector<std::byte> memory = std::vector<std::byte>(4 * extent_bytes);
  std::shared_ptr<resident_slots> resident = std::make_shared<resident_slots>(100);
  frame_table frames{slot_bytes, make_lru_policy, resident};

  static page_ref page(slot_number slot, generation_number generation = 1) {
    return {key_digest{slot, 7}, {slot, generation}};
  }

  /// A page that is in memory and in the slab, without a pin.
  frame_number clean(slot_number slot) {
    const auto f = frames.take(page(slot), frame_state::reading);
    REQUIRE(f != no_frame);
    frames.end_read(f, true);
    frames.unpin(f);
    return f;
  }

  void sound() const { CHECK(frames.check() == ""); }
};

} // namespace

TEST_CASE("frames: each lies whole in one extent and has a fixed offset in the arena", "[frame_table]") {
  table t(2);
  CHECK(t.frames.size() == 6);
  for (slot_number slot = 0; slot < 6; ++slot) {
    const auto f = t.frames.take(t.page(slot), frame_state::filling);
    REQUIRE(f == slot);
    const auto extent = slot / 3;
    const auto at = extent * table::extent_bytes + (slot % 3) * slot_bytes;
    CHECK(t.frames.offset(f) == at);
    CHECK(t.frames.bytes(f).data() == t.memory.data() + at);
    CHECK(t.frames.bytes(f).size() == slot_bytes);
    CHECK(t.frames.buffer(f) == 40 + extent);
    CHECK(t.frames.find({slot, 1}) == f);
    CHECK(t.frames.find({slot, 2}) == no_frame);
  }
  CHECK(t.frames.take(t.page(9), frame_state::filling) == no_frame);
  t.sound();
}

TEST_CASE("frames: readable pages are recorded as resident", "[frame_table]") {
  table t(1);
  const auto filled = t.frames.take(t.page(70), frame_state::filling);
  const auto read = t.frames.take(t.page(7), frame_state::reading);
  const auto failed = t.frames.take(t.page(8), frame_state::reading);
  for (const slot_number slot : {70, 7, 8})
    CHECK_FALSE(t.resident->contains(slot));
  t.frames.filled(filled);
  t.frames.end_read(read, true);
  t.frames.end_read(failed, false);
  CHECK(t.resident->contains(70));
  CHECK(t.resident->contains(7));
  CHECK_FALSE(t.resident->contains(8));
  t.sound();
  for (const auto f : {filled, read, failed})
    t.frames.unpin(f);
  // Makes room for another one, and is dropped while it is written.
  t.clean(9);
  t.clean(10);
  CHECK_FALSE(t.resident->contains(7));
  CHECK(t.resident->contains(9));
  t.frames.begin_write(filled);
  CHECK(t.resident->contains(70));
  t.frames.drop(filled);
  CHECK_FALSE(t.resident->contains(70));
  t.frames.end_write(filled, true);
  CHECK_FALSE(t.resident->contains(70));
  t.sound();
  // Slots outside of the slab are never resident.
  t.resident->set(5000);
  CHECK_FALSE(t.resident->contains(5000));
}

TEST_CASE("frames: a filled page stays until it is written and is then evicted for another", "[frame_table]") {
  table t(1);
  const auto f = t.frames.take(t.page(1), frame_state::filling);
  t.frames.filled(f);
  t.frames.unpin(f);
  t.clean(2);
  t.clean(3);
  CHECK(t.frames.state(f) == frame_state::dirty);
  CHECK(t.frames.take(t.page(4), frame_state::filling) != no_frame);
  CHECK(t.frames.find({2, 1}) == no_frame);
  CHECK(t.frames.find({4, 1}) != no_frame);
  CHECK(t.frames.take(t.page(5), frame_state::filling) != no_frame);
  CHECK(t.frames.find({3, 1}) == no_frame);
  // The dirty one is all that is left.
  CHECK(t.frames.take(t.page(6), frame_state::filling) == no_frame);
  t.frames.begin_write(f);
  CHECK(t.frames.take(t.page(6), frame_state::filling) == no_frame);
  t.frames.end_write(f, false);
  CHECK(t.frames.take(t.page(6), frame_state::filling) == no_frame);
  t.frames.begin_write(f);
  t.frames.end_write(f, true);
  CHECK(t.frames.take(t.page(6), frame_state::filling) == f);
  CHECK(t.frames.evicted() == 3);
  t.sound();
}

TEST_CASE("frames: the most recently used page is evicted last, even if it was used before it was written",
          "[frame_table]") {
  table t(1);
  const auto filled = t.frames.take(t.page(1), frame_state::filling);
  t.frames.filled(filled);
  t.frames.unpin(filled);
  t.frames.touch(filled);
  t.frames.begin_write(filled);
  t.frames.end_write(filled, true);
  const auto second = t.clean(2);
  t.clean(3);
  t.frames.touch(filled);
  t.frames.touch(second);
  CHECK(t.frames.take(t.page(4), frame_state::reading) != no_frame);
  CHECK(t.frames.find({3, 1}) == no_frame);
  CHECK(t.frames.take(t.page(5), frame_state::reading) == filled);
  t.sound();
}

TEST_CASE("frames: pinned pages are not evicted", "[frame_table]") {
  table t(1);
  const auto a = t.clean(1);
  t.clean(2);
  t.clean(3);
  t.frames.pin(a);
  t.frames.pin(a);
  CHECK(t.frames.take(t.page(4), frame_state::filling) != no_frame);
  CHECK(t.frames.take(t.page(5), frame_state::filling) != no_frame);
  CHECK(t.frames.take(t.page(6), frame_state::filling) == no_frame);
  t.frames.unpin(a);
  CHECK(t.frames.take(t.page(6), frame_state::filling) == no_frame);
  CHECK(t.frames.pinned() == 3);
  t.frames.unpin(a);
  CHECK(t.frames.take(t.page(6), frame_state::filling) == a);
  t.sound();
}

TEST_CASE("frames: a dropped page is not found, and its frame is reused when no transfer uses it", "[frame_table]") {
  table t(1);
  const auto f = t.frames.take(t.page(1), frame_state::filling);
  const auto turn = t.frames.turn(f);
  SECTION("while its writer holds the pin") {
    t.frames.drop(f);
    CHECK(t.frames.state(f) == frame_state::orphaned);
    t.sound();
    t.frames.unpin(f);
  }
  SECTION("while it is written and a reader holds a pin") {
    t.frames.filled(f);
    t.frames.begin_write(f);
    t.frames.drop(f);
    CHECK(t.frames.dropped(f));
    CHECK(t.frames.state(f) == frame_state::writing);
    t.sound();
    t.frames.end_write(f, GENERATE(true, false));
    CHECK(t.frames.state(f) == frame_state::orphaned);
    t.frames.unpin(f);
  }
  SECTION("while it is written without a pin") {
    t.frames.filled(f);
    t.frames.unpin(f);
    t.frames.begin_write(f);
    t.frames.drop(f);
    CHECK(t.frames.count(frame_state::free) == 2);
    t.frames.end_write(f, true);
  }
  SECTION("when it is clean") {
    t.frames.filled(f);
    t.frames.unpin(f);
    t.frames.begin_write(f);
    t.frames.end_write(f, true);
    t.frames.drop(f);
  }
  CHECK(t.frames.find({1, 1}) == no_frame);
  CHECK(t.frames.in_slot(1) == no_frame);
  CHECK(t.frames.state(f) == frame_state::free);
  CHECK_FALSE(t.frames.dropped(f));
  t.sound();
  // The slot gets another page in another frame meanwhile, and then the frame is considered again.
  CHECK(t.frames.take(t.page(1, 2), frame_state::filling) != f);
  CHECK(t.frames.take(t.page(2), frame_state::filling) != f);
  CHECK(t.frames.take(t.page(3), frame_state::filling) == f);
  CHECK(t.frames.turn(f) != turn);
  t.sound();
}

TEST_CASE("frames: a page that could not be read is freed when its waiters have unpinned it", "[frame_table]") {
  table t(1);
  const auto f = t.frames.take(t.page(1), frame_state::reading);
  t.frames.pin(f);
  t.frames.end_read(f, false);
  CHECK(t.frames.find({1, 1}) == no_frame);
  t.sound();
  t.frames.unpin(f);
  CHECK(t.frames.state(f) == frame_state::orphaned);
  t.frames.unpin(f);
  CHECK(t.frames.state(f) == frame_state::free);
  t.sound();
}

TEST_CASE("frames: held-back pages are evicted in the order of the clean ones once they are expendable",
          "[frame_table]") {
  table t(1);
  const auto dirty = [&](slot_number slot) {
    const auto f = t.frames.take(t.page(slot), frame_state::filling);
    REQUIRE(f != no_frame);
    t.frames.filled(f);
    t.frames.unpin(f);
    t.frames.hold_back(f);
    return f;
  };
  const auto a = dirty(0);
  const auto b = dirty(1);
  const auto c = t.clean(2);
  CHECK(t.frames.held_back() == 2);
  CHECK(t.frames.expendable() == 0);
  t.sound();
  SECTION("not before they are expendable") {
    CHECK(t.frames.take(t.page(3), frame_state::filling) == c);
    CHECK(t.frames.take(t.page(4), frame_state::filling) == no_frame);
    CHECK(t.frames.take_dropped().empty());
  }
  SECTION("the oldest batch first, and the last page of a batch before the others") {
    t.frames.let_expend(std::array{a, b});
    CHECK(t.frames.take(t.page(3), frame_state::filling) == c);
    t.frames.touch(b);
    CHECK(t.frames.take(t.page(4), frame_state::filling) == a);
    CHECK(t.frames.take_dropped() == std::vector{t.page(0)});
    CHECK(t.frames.find({0, 1}) == no_frame);
    CHECK(t.frames.evicted() == 1);
    CHECK(t.frames.held_back() == 1);
  }
  SECTION("a kept page is written like others") {
    t.frames.let_expend(std::array{a, b});
    CHECK(t.frames.keep(a));
    CHECK_FALSE(t.frames.keep(a));
    CHECK(t.frames.keep(b));
    t.frames.begin_write(a);
    t.frames.end_write(a, true);
    CHECK(t.frames.held_back() == 0);
    CHECK(t.frames.state(a) == frame_state::clean);
  }
  SECTION("a page that is dropped on request is not reported") {
    t.frames.let_expend(std::array{a});
    t.frames.drop(a);
    t.frames.drop(b);
    CHECK(t.frames.held_back() == 0);
    CHECK(t.frames.take_dropped().empty());
  }
  SECTION("all are evicted at once") {
    t.frames.let_expend(std::array{a});
    t.frames.drop_all();
    CHECK(t.frames.take_dropped().size() == 2);
    CHECK(t.frames.count(frame_state::free) == 2);
    CHECK(t.frames.resident() == 1);
  }
  t.sound();
}

TEST_CASE("frames: an extent is released when its pages have moved, and another one gets its frame numbers",
          "[frame_table]") {
  table t(2);
  const auto a = t.clean(1);
  const auto b = t.frames.take(t.page(2), frame_state::filling);
  t.frames.filled(b);
  t.frames.unpin(b);
  for (const auto f : {a, b})
    std::ranges::fill(t.frames.bytes(f), std::byte(7 + f));
  for (slot_number slot = 3; slot < 7; ++slot)
    t.clean(slot);
  for (slot_number slot = 3; slot < 6; ++slot)
    t.frames.drop(t.frames.in_slot(slot));
  // Page 6 is alone in the second extent, pages 1 and 2 are in the first one.
  REQUIRE(t.frames.begin_emptying());
  CHECK_FALSE(t.frames.begin_emptying());
  CHECK(t.frames.lasting() == 3);
  CHECK(t.frames.size() == 4);
  t.sound();
  const auto f = t.frames.next_to_move();
  REQUIRE(f == t.frames.in_slot(6));
  const auto bytes = t.frames.bytes(f)[0];
  CHECK_FALSE(t.frames.emptied());
  const auto to = t.frames.move(f);
  CHECK(to / 3 != f / 3);
  CHECK(t.frames.in_slot(6) == to);
  CHECK(t.frames.bytes(to)[0] == bytes);
  t.sound();
  CHECK(t.frames.next_to_move() == no_frame);
  REQUIRE(t.frames.emptied());
  const auto gone = t.frames.take_emptied();
  CHECK(gone.buffer == 40 + f / 3);
  CHECK(t.frames.extents() == 1);
  CHECK(t.frames.size() == 3);
  t.sound();
  CHECK(t.frames.take(t.page(9), frame_state::filling) / 3 != f / 3);
  t.frames.add_extent({9, 3 * table::extent_bytes, std::span(t.memory).subspan(3 * table::extent_bytes), 49});
  CHECK(t.frames.numbers() == 6);
  CHECK(t.frames.size() == 6);
  t.sound();
  const auto back = t.frames.take(t.page(10), frame_state::filling);
  CHECK(back / 3 == f / 3);
  CHECK(t.frames.buffer(back) == 49);
  CHECK(t.frames.offset(back) == 3 * table::extent_bytes + (back % 3) * slot_bytes);
  t.sound();
}

TEST_CASE("frames: moved pages keep their place in the order of eviction", "[frame_table]") {
  table t(3);
  for (slot_number slot = 0; slot < 9; ++slot)
    t.clean(slot);
  // The first extent has fewest pages: 0 and 2, of which 0 was used.
  t.frames.drop(t.frames.in_slot(1));
  t.frames.touch(t.frames.in_slot(0));
  REQUIRE(t.frames.begin_emptying());
  while (!t.frames.emptied()) {
    const auto f = t.frames.next_to_move();
    REQUIRE(f != no_frame);
    if (t.frames.count(frame_state::free) == 0)
      REQUIRE(t.frames.evict());
    else
      t.frames.move(f);
    t.sound();
  }
  t.frames.take_emptied();
  // 2 was evicted first, wherever it was; then 3, whose frame 0 took.
  CHECK(t.frames.find({2, 1}) == no_frame);
  CHECK(t.frames.find({3, 1}) == no_frame);
  std::vector<slot_number> order;
  for (slot_number next = 20; next < 26; ++next) {
    std::vector<slot_number> before;
    for (slot_number slot = 0; slot < 9; ++slot)
      if (t.frames.in_slot(slot) != no_frame)
        before.push_back(slot);
    REQUIRE(t.frames.take(t.page(next), frame_state::filling) != no_frame);
    for (const auto slot : before)
      if (t.frames.in_slot(slot) == no_frame)
        order.push_back(slot);
  }
  CHECK(order == std::vector<slot_number>{4, 5, 6, 7, 8, 0});
}

TEST_CASE("frames: held-back pages keep their turn when moved, or are evicted at their turn", "[frame_table]") {
  table t(2);
  const auto dirty = [&](slot_number slot) {
    const auto f = t.frames.take(t.page(slot), frame_state::filling);
    t.frames.filled(f);
    t.frames.unpin(f);
    t.frames.hold_back(f);
    return f;
  };
  const auto oldest = dirty(0);
  const auto waits = dirty(1);
  const auto next = dirty(2);
  const auto leaves = dirty(3);
  t.frames.let_expend(std::array{oldest});
  t.frames.let_expend(std::array{leaves});
  t.frames.let_expend(std::array{next});
  REQUIRE(t.frames.begin_emptying());
  REQUIRE(t.frames.next_to_move() == leaves);
  REQUIRE(t.frames.evict());
  CHECK(t.frames.take_dropped() == std::vector{t.page(0)});
  CHECK(t.frames.vacated().size() == 1);
  t.frames.forget_vacated();
  const auto to = t.frames.move(leaves);
  CHECK(to == oldest);
  CHECK(t.frames.expendable(to));
  CHECK_FALSE(t.frames.held_back(leaves));
  t.sound();
  REQUIRE(t.frames.emptied());
  t.frames.take_emptied();
  CHECK(t.frames.held_back() == 3);
  CHECK(t.frames.held_back(waits));
  // 3 precedes 2, and 1 is not evictable.
  CHECK(t.frames.take(t.page(7), frame_state::filling) == to);
  CHECK(t.frames.take(t.page(8), frame_state::filling) == next);
  CHECK(t.frames.take(t.page(9), frame_state::filling) == no_frame);
  CHECK(t.frames.take_dropped() == std::vector{t.page(3), t.page(2)});
  CHECK(t.frames.evicted() == 0);
  t.sound();
}

TEST_CASE("frames: the extent that is emptied is the least used one, and emptying can be cancelled", "[frame_table]") {
  table t(3);
  for (slot_number slot = 0; slot < 8; ++slot)
    t.clean(slot);
  const auto pinned = t.frames.in_slot(7);
  t.frames.pin(pinned);
  // The third one has fewest pages, and one of them is pinned.
  REQUIRE(t.frames.begin_emptying());
  CHECK(t.frames.next_to_move() / 3 == 0);
  CHECK(t.frames.count(frame_state::free) == 1);
  t.frames.stop_emptying();
  CHECK(t.frames.count(frame_state::free) == 1);
  CHECK_FALSE(t.frames.emptying());
  t.sound();
  for (slot_number slot = 0; slot < 7; ++slot)
    t.frames.pin(t.frames.in_slot(slot));
  REQUIRE(t.frames.begin_emptying());
  // Its free frame is not used, and the others are pinned.
  CHECK(t.frames.count(frame_state::free) == 0);
  CHECK(t.frames.next_to_move() == no_frame);
  CHECK(t.frames.take(t.page(9), frame_state::filling) == no_frame);
  CHECK(t.frames.lasting() == 6);
  // One of them is dropped and waits for its pin, and then its frame is absent too.
  t.frames.drop(pinned);
  t.frames.unpin(pinned);
  CHECK(t.frames.state(pinned) == frame_state::absent);
  t.sound();
  t.frames.stop_emptying();
  CHECK(t.frames.count(frame_state::free) == 2);
  CHECK(t.frames.take(t.page(9), frame_state::filling) != no_frame);
  t.sound();
}

TEST_CASE("frames: the least recently used page is reported, in any state", "[frame_table]") {
  table t(1);
  CHECK_FALSE(t.frames.oldest_use());
  const auto at = [](int s) { return timestamp{std::chrono::seconds(s)}; };
  t.frames.pass_time(at(10));
  const auto dirty = t.frames.take(t.page(1), frame_state::filling);
  t.frames.filled(dirty);
  t.frames.unpin(dirty);
  t.frames.pass_time(at(20));
  const auto clean = t.clean(2);
  CHECK(t.frames.oldest_use() == at(10));
  t.frames.pass_time(at(30));
  t.frames.touch(dirty);
  CHECK(t.frames.oldest_use() == at(20));
  t.frames.drop(clean);
  CHECK(t.frames.oldest_use() == at(30));
}

TEST_CASE("frames: a pinned page counts as in use, however old it is", "[frame_table]") {
  table t(1);
  const auto at = [](int s) { return timestamp{std::chrono::seconds(s)}; };
  t.frames.pass_time(at(10));
  const auto kept = t.clean(1);
  t.frames.pin(kept);
  t.frames.pass_time(at(20));
  t.clean(2);
  t.frames.pass_time(at(50));
  CHECK(t.frames.oldest_use() == at(20));
  t.frames.unpin(kept);
  CHECK(t.frames.oldest_use() == at(10));
  t.frames.pin(kept);
  t.frames.drop(kept);
  CHECK(t.frames.state(kept) == frame_state::orphaned);
  CHECK(t.frames.oldest_use() == at(20));
}

} // namespace frame_table_test
