#include "actors/node/io_worker/frame_table.hpp"
#include "actors/node/registry/lru_policy.hpp"
#include "tests/catch.hpp"

#include <array>
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
  frame_table frames{slot_bytes, make_lru_policy};

  static page_ref page(slot_number slot, generation_number generation = 1) {
    return {key_digest{slot, 7}, {slot, generation}};
  }

  /// A page that is in memory and in the slab, and that nobody has pinned.
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

TEST_CASE("frames: each lies in one extent, whole, and has its place in the arena", "[frame_table]") {
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

TEST_CASE("frames: a page that is filled stays until it is written, and then goes for another", "[frame_table]") {
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

TEST_CASE("frames: what was used last goes last, be it used before it was written", "[frame_table]") {
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

TEST_CASE("frames: what is pinned goes for nobody", "[frame_table]") {
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

TEST_CASE("frames: a page that is dropped is found no more, and its frame is another's when nobody touches it",
          "[frame_table]") {
  table t(1);
  const auto f = t.frames.take(t.page(1), frame_state::filling);
  const auto turn = t.frames.turn(f);
  SECTION("while its writer has it pinned") {
    t.frames.drop(f);
    CHECK(t.frames.state(f) == frame_state::orphaned);
    t.sound();
    t.frames.unpin(f);
  }
  SECTION("while it is written, and somebody reads it") {
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
  SECTION("while it is written, and nobody has it pinned") {
    t.frames.filled(f);
    t.frames.unpin(f);
    t.frames.begin_write(f);
    t.frames.drop(f);
    CHECK(t.frames.count(frame_state::free) == 2);
    t.frames.end_write(f, true);
  }
  SECTION("when it was clean") {
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
  // The slot has another page meanwhile, in another frame; then the frame comes round.
  CHECK(t.frames.take(t.page(1, 2), frame_state::filling) != f);
  CHECK(t.frames.take(t.page(2), frame_state::filling) != f);
  CHECK(t.frames.take(t.page(3), frame_state::filling) == f);
  CHECK(t.frames.turn(f) != turn);
  t.sound();
}

TEST_CASE("frames: a page that could not be read is gone when those who waited have let go", "[frame_table]") {
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

TEST_CASE("frames: those that are held back make room in the order of the clean ones, once they may", "[frame_table]") {
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
  SECTION("not before") {
    CHECK(t.frames.take(t.page(3), frame_state::filling) == c);
    CHECK(t.frames.take(t.page(4), frame_state::filling) == no_frame);
    CHECK(t.frames.take_given_up().empty());
  }
  SECTION("the oldest first, the last of those that came together before the others") {
    t.frames.let_expend(std::array{a, b});
    CHECK(t.frames.take(t.page(3), frame_state::filling) == c);
    t.frames.touch(b);
    CHECK(t.frames.take(t.page(4), frame_state::filling) == a);
    CHECK(t.frames.take_given_up() == std::vector{t.page(0)});
    CHECK(t.frames.find({0, 1}) == no_frame);
    CHECK(t.frames.evicted() == 1);
    CHECK(t.frames.held_back() == 1);
  }
  SECTION("one that is kept is written as others are") {
    t.frames.let_expend(std::array{a, b});
    CHECK(t.frames.keep(a));
    CHECK_FALSE(t.frames.keep(a));
    CHECK(t.frames.keep(b));
    t.frames.begin_write(a);
    t.frames.end_write(a, true);
    CHECK(t.frames.held_back() == 0);
    CHECK(t.frames.state(a) == frame_state::clean);
  }
  SECTION("one that is dropped is no page that was given up") {
    t.frames.let_expend(std::array{a});
    t.frames.drop(a);
    t.frames.drop(b);
    CHECK(t.frames.held_back() == 0);
    CHECK(t.frames.take_given_up().empty());
  }
  SECTION("all go at once") {
    t.frames.let_expend(std::array{a});
    t.frames.give_up_all();
    CHECK(t.frames.take_given_up().size() == 2);
    CHECK(t.frames.count(frame_state::free) == 2);
    CHECK(t.frames.resident() == 1);
  }
  t.sound();
}

} // namespace frame_table_test
