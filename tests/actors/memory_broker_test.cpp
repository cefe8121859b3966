#include "actors/node/memory/memory_broker.hpp"
#include "tests/actors/io_worker_support.hpp"

#include <chrono>
#include <utility>
#include <vector>

/// Io workers of several ranks on one small arena, and the actor that distributes it.

namespace memory_broker_test {

namespace {

using namespace troupe;
using namespace troupe::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

struct world : sim {
  static constexpr std::uint64_t slot_size = 8192;
  static constexpr std::uint32_t per_extent = 4;
  /// With a remainder in which no frame fits, as in real extents.
  static constexpr std::uint64_t extent_size = per_extent * slot_size + 4096;
  static constexpr owner_id client_id = 1;

  std::shared_ptr<memory_extents> extents = std::make_shared<memory_extents>(4U, extent_size);
  memory_broker_actor broker = spawn<memory_broker>(extents);

  /// A rank in memory only, whose allocator is `slots`, if that is given.
  io_worker_actor add_rank(rank_number rank, const probe* slots = nullptr) {
    auto parts = std::make_shared<io_worker_parts>();
    parts->name = {{1, 2}, "small", rank};
    parts->page_bytes = 4096;
    parts->extents = extents;
    parts->broker = broker;
    parts->options.slots = 16;
    parts->options.slot_bytes = slot_size;
    parts->options.memory_only = true;
    parts->options.deadline_max = seconds(10);
    parts->options.pinned_bytes_max = 16 * slot_size;
    const auto out = spawn<io_worker>(std::move(parts));
    CHECK(ask(broker, memory_holder{{1, 2}, rank, out}).code() == errc::ok);
    if (slots != nullptr) {
      const registry_peers peers{{}, {slots->as<allocator_actor>()}, {namespace_id{1, 2}}, {rank}};
      CHECK(ask(out, bind_atom_v, peers).code() == errc::ok);
    }
    return out;
  }

  static frame_request pages(slot_number first, slot_number count) {
    frame_request out;
    for (auto slot = first; slot < first + count; ++slot)
      out.pages.items.push_back({key_digest{slot, 1}, {slot, 1}});
    out.patience = seconds(5);
    return out;
  }

  std::uint64_t place(const io_worker_actor& who, slot_number first, slot_number count) {
    return begin(who, place_atom_v, client_id, pages(first, count));
  }

  /// Pages that are there from now on.
  void save(const io_worker_actor& who, slot_number first, slot_number count) {
    const auto placed = ask(who, place_atom_v, client_id, pages(first, count)).value<frame_reply>();
    REQUIRE(io_worker_world::codes_of(placed) == std::vector(count, errc::ok));
    REQUIRE(ask(who, fill_atom_v, client_id, io_worker_world::all_gathered(placed.pin, count)).code() == errc::ok);
  }

  void fence(const io_worker_actor& who, slot_number first, slot_number count) {
    slot_batch gone;
    for (auto slot = first; slot < first + count; ++slot)
      gone.slots.items.push_back({slot, 1});
    REQUIRE(ask(who, fence_atom_v, gone).code() == errc::ok);
  }

  io_stats stats(const io_worker_actor& who) { return ask(who, stats_atom_v).value<io_stats>(); }
};

} // namespace

TEST_CASE_METHOD(world, "memory broker: a rank without memory gets an extent of a rank with more", "[memory]") {
  const auto a = add_rank(0);
  const auto b = add_rank(1);
  save(a, 0, 12);
  save(a, 12, 2);
  REQUIRE(extents->available() == 0);
  const auto wanted = place(b, 0, 2);
  CHECK_FALSE(client().answer_to(wanted).came);
  // Its pages are nowhere else: only where slots are given back there is room.
  fence(a, 4, 4);
  advance(seconds(2));
  const auto got = client().answer_to(wanted);
  CHECK(io_worker_world::codes_of(got.value<frame_reply>()) == std::vector(2, errc::ok));
  CHECK(stats(a).extents == 3);
  CHECK(stats(a).returned_extents == 1);
  CHECK(stats(a).resident_pages == 10);
  CHECK(stats(b).extents == 1);
  CHECK(extents->available() == 0);
  for (const auto slot : {0U, 11U, 13U}) {
    const auto found = ask(a, fetch_atom_v, client_id, pages(slot, 1)).value<frame_reply>();
    CHECK(io_worker_world::codes_of(found) == std::vector{errc::ok});
  }
}

TEST_CASE_METHOD(world, "memory broker: an idle rank gives extents to a busy one and allocators are notified",
                 "[memory]") {
  probe slots_of_a(system());
  probe slots_of_b(system());
  const auto a = add_rank(0, &slots_of_a);
  const auto b = add_rank(1, &slots_of_b);
  const auto frames_said = [](probe& x) {
    const auto said = x.take<resize_atom, std::uint32_t>();
    return said.empty() ? 99U : said.back().get<std::uint32_t>(1);
  };
  save(a, 0, 12);
  save(b, 0, 4);
  CHECK(frames_said(slots_of_a) == 12);
  CHECK(frames_said(slots_of_b) == 4);
  advance(seconds(20));
  const auto found = ask(b, fetch_atom_v, client_id, pages(0, 4)).value<frame_reply>();
  CHECK(ask(b, unpin_atom_v, client_id, found.pin).code() == errc::ok);
  const auto growing = begin(b, grow_atom_v, std::uint32_t{2});
  // At once, since it has some.
  CHECK(client().answer_to(growing).value<std::uint32_t>() == 4);
  advance(milliseconds(100));
  // Its allocator is notified of the smaller number of pages before any page is dropped.
  CHECK(frames_said(slots_of_a) == 8);
  CHECK(stats(a).extents == 3);
  fence(a, 0, 4);
  advance(milliseconds(100));
  CHECK(stats(a).extents == 2);
  CHECK(stats(b).extents == 2);
  CHECK(frames_said(slots_of_b) == 8);
}

TEST_CASE_METHOD(world, "memory broker: an allocator without memory waits for extents for a limited time", "[memory]") {
  probe slots_of_b(system());
  const auto a = add_rank(0);
  const auto b = add_rank(1, &slots_of_b);
  const auto placed = ask(a, place_atom_v, client_id, pages(0, 16)).value<frame_reply>();
  REQUIRE(extents->available() == 0);
  const auto growing = begin(b, grow_atom_v, std::uint32_t{2});
  CHECK_FALSE(client().answer_to(growing).came);
  // All of it is pinned, so no rank can give an extent.
  advance(milliseconds(1100));
  CHECK(client().answer_to(growing).value<std::uint32_t>() == 0);
  const auto again = begin(b, grow_atom_v, std::uint32_t{2});
  REQUIRE(ask(a, fill_atom_v, client_id, fill_request{placed.pin, {}, seconds(1)}).code() == errc::ok);
  advance(milliseconds(900));
  const auto answered = client().answer_to(again);
  CHECK((!answered.came || answered.value<std::uint32_t>() >= 4));
  advance(seconds(1));
  CHECK(stats(b).extents == 1);
}

TEST_CASE_METHOD(world, "memory broker: extents returned for a rank that has ended go to the arena", "[memory]") {
  const auto a = add_rank(0);
  const auto b = add_rank(1);
  save(a, 0, 16);
  place(b, 0, 1);
  advance(milliseconds(20));
  end(b);
  fence(a, 0, 4);
  advance(seconds(1));
  CHECK(stats(a).extents == 3);
  CHECK(extents->available() == 1);
  // Another one in its place.
  const auto c = add_rank(1);
  save(c, 0, 1);
  CHECK(stats(c).extents == 1);
  CHECK(ask(broker, memory_report{{9, 9}, 7, true, 0, 0, {}}).code() == errc::not_found);
}

TEST_CASE_METHOD(world, "memory broker: a request stays open while its extent is being reclaimed", "[memory]") {
  const auto a = add_rank(0);
  const auto b = add_rank(1);
  save(a, 0, 16);
  const auto phase = milliseconds(GENERATE(range(1000, 3000, 130)));
  CAPTURE(phase.count());
  const auto wanted = place(b, 0, 1);
  advance(phase);
  REQUIRE(stats(b).extents == 0);
  fence(a, 0, 4);
  // No other rank may get it meanwhile.
  extents->failure = errc::full;
  advance(milliseconds(10));
  CHECK(stats(b).extents == 1);
  CHECK(client().answer_to(wanted).came);
}

TEST_CASE_METHOD(world, "memory broker: an empty extent is given away even if the rank's other pages are recent",
                 "[memory]") {
  probe slots_of_b(system());
  const auto a = add_rank(0);
  const auto b = add_rank(1, &slots_of_b);
  save(a, 0, 8);
  save(b, 0, 8);
  REQUIRE(extents->available() == 0);
  fence(a, 0, 4);
  advance(seconds(20));
  const auto found = ask(a, fetch_atom_v, client_id, pages(4, 4)).value<frame_reply>();
  CHECK(ask(a, unpin_atom_v, client_id, found.pin).code() == errc::ok);
  advance(seconds(1));
  CHECK(ask(b, grow_atom_v, std::uint32_t{2}).value<std::uint32_t>() == 8);
  advance(milliseconds(100));
  CHECK(stats(a).extents == 1);
  CHECK(stats(a).resident_pages == 4);
  CHECK(stats(b).extents == 3);
}

} // namespace memory_broker_test
