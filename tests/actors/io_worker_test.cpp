#include "tests/actors/io_worker_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>

namespace io_worker_test {

using namespace troupe;
using namespace troupe::test;

using world = io_worker_world;

namespace {

/// A commit means that the page is in the slab.
struct strict_world : io_worker_world {
  strict_world() : io_worker_world(true) {}
};

constexpr std::byte ones{0x11};
constexpr std::byte twos{0x22};

} // namespace

TEST_CASE_METHOD(world, "io worker: a page is read from memory while resident and from the slab afterwards",
                 "[io_worker]") {
  save({page(3), page(6)}, ones);
  CHECK(stats().written_pages == 2);
  const auto first = fetch({page(6)});
  CHECK(first.frames[0].promoted == 0);
  CHECK(holds(page(6), first.frames[0], ones));
  unpin(first.pin);
  save({page(0), page(1), page(2), page(4)}, twos);
  CHECK(stats().demotions == 2);
  const auto again = fetch({page(3), page(4)});
  CHECK(again.frames[0].promoted == 1);
  CHECK(holds(page(3), again.frames[0], ones));
  CHECK(holds(page(4), again.frames[1], twos));
  CHECK(stats().read_pages == 1);
  CHECK(stats().memory_hits == 2);
  CHECK(stats().frames == frames_per_extent);
}

TEST_CASE_METHOD(world, "io worker: a fetch is answered when its last page has been read, with a code per page",
                 "[io_worker]") {
  save({page(0), page(1)}, ones);
  save({page(2), page(3), page(4), page(5)}, twos);
  engine->set_plan([first = true](const io::request&, std::uint64_t) mutable {
    fault out;
    out.held = true;
    out.status = std::exchange(first, false) ? errc::ok : errc::io_error;
    return out;
  });
  const auto number = begin(worker, fetch_atom_v, owner_id{1}, request({page(0), page(1), page(9), page(5)}));
  CHECK(stats().in_flight == 2);
  const auto held = engine->held();
  REQUIRE(held.size() == 2);
  engine->release(held[1]);
  run();
  CHECK_FALSE(client().answer_to(number).came);
  engine->release(held[0]);
  run();
  CHECK(codes_of(client().answer_to(number).value<frame_reply>()) ==
        std::vector{errc::ok, errc::io_error, errc::out_of_range, errc::ok});
  CHECK(stats().in_flight == 0);
}

TEST_CASE_METHOD(world, "io worker: a fence waits for I/O in progress and then rejects the old generation",
                 "[io_worker]") {
  hold_all();
  save({page(2)}, ones);
  const auto fencing = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{2, 1}}});
  const auto other = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{5, 1}}});
  CHECK(client().answer_to(other).code() == errc::ok);
  CHECK_FALSE(client().answer_to(fencing).came);
  advance(std::chrono::minutes(1));
  CHECK_FALSE(client().answer_to(fencing).came);
  release_all();
  CHECK(client().answer_to(fencing).code() == errc::ok);
  CHECK(codes_of(fetch({page(2)})) == std::vector{errc::stale});
  CHECK(codes_of(place({page(2), page(2, 2)})) == std::vector{errc::stale, errc::ok});
}

TEST_CASE_METHOD(strict_world, "io worker: a write-through fill is answered when its pages are in the slab",
                 "[io_worker]") {
  const auto placed = place({page(0), page(1)});
  gather(page(0), placed.frames[0], ones);
  gather(page(1), placed.frames[1], twos);
  engine->set_plan([](const io::request&, std::uint64_t n) {
    fault out;
    out.held = true;
    out.status = n == 1 ? errc::no_space : errc::ok;
    return out;
  });
  const auto number = begin(worker, fill_atom_v, owner_id{1}, all_gathered(placed.pin, 2));
  CHECK_FALSE(client().answer_to(number).came);
  release_all();
  CHECK(codes_of(client().answer_to(number)) == std::vector{errc::ok, errc::no_space});
}

TEST_CASE_METHOD(world, "io worker: a page corrupted in memory is not written and is reported to its shard",
                 "[io_worker]") {
  bind();
  CHECK(ask(worker, bind_atom_v, registry_peers{}).code() == errc::exists);
  const auto placed = place({page(0), page(1), page(2)});
  for (std::size_t i = 0; i < 3; ++i)
    gather(page(static_cast<slot_number>(i)), placed.frames[i], ones);
  frame(placed.frames[1])[io::page_header_bytes + 17] ^= std::byte{1};
  // Another's page, whole.
  gather(page(7), placed.frames[2], twos);
  CHECK(fill(placed.pin, 3) == std::vector(3, errc::ok));
  CHECK(stats().written_pages == 1);
  CHECK(stats().damaged_pages == 2);
  const auto notified = shard.take_one<invalidate_request>();
  const auto& x = notified.get<invalidate_request>(0);
  CHECK(x.ns == namespace_id{1, 2});
  CHECK(x.pages.items == std::vector{page(1), page(2)});
  CHECK(x.reasons.items ==
        std::vector{static_cast<std::uint8_t>(errc::corrupt), static_cast<std::uint8_t>(errc::identity_mismatch)});
  CHECK(x.tier(0) == page_tier::memory);
  CHECK(x.tier(1) == page_tier::memory);
}

TEST_CASE_METHOD(world, "io worker: frames of a disconnected client are not reused until it is quiesced",
                 "[io_worker]") {
  place({page(0), page(1), page(2), page(3)}, 7);
  CHECK(ask(worker, owner_died_atom_v, owner_id{7}).code() == errc::ok);
  CHECK(ask(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}}).code() ==
        errc::ok);
  const auto waiting = begin(worker, place_atom_v, owner_id{1}, request({page(4)}));
  advance(std::chrono::seconds(4));
  CHECK_FALSE(client().answer_to(waiting).came);
  CHECK(stats().orphaned_frames == 4);
  CHECK(ask(worker, fetch_atom_v, owner_id{7}, request({page(0)})).code() == errc::expired);
  CHECK(ask(worker, owner_quiesced_atom_v, owner_id{7}).code() == errc::ok);
  CHECK(codes_of(client().answer_to(waiting).value<frame_reply>()) == std::vector{errc::ok});
  CHECK(ask(worker, owner_quiesced_atom_v, owner_id{7}).code() == errc::ok);
}

TEST_CASE_METHOD(world, "io worker: a request that waits for memory is answered at its deadline", "[io_worker]") {
  place({page(0), page(1), page(2), page(3)});
  const auto waiting = begin(worker, place_atom_v, owner_id{1}, request({page(4)}, std::chrono::milliseconds(300)));
  advance(std::chrono::milliseconds(200));
  CHECK_FALSE(client().answer_to(waiting).came);
  advance(std::chrono::milliseconds(200));
  CHECK(codes_of(client().answer_to(waiting).value<frame_reply>()) == std::vector{errc::full});
  CHECK(ask(worker, place_atom_v, owner_id{1}, request({page(5)}, duration::zero())).code() == errc::timeout);
}

TEST_CASE_METHOD(world, "io worker: memory that the host grants later is used", "[io_worker]") {
  save({page(0), page(1), page(2), page(3)}, ones);
  extents->limit(2);
  extents->failure = errc::limit_exceeded;
  advance(std::chrono::seconds(2));
  save({page(4)}, ones);
  CHECK(stats().frames == 4);
  extents->failure = errc::ok;
  advance(std::chrono::seconds(2));
  save({page(5)}, ones);
  CHECK(stats().frames == 8);
  CHECK(stats().demotions == 1);
}

TEST_CASE_METHOD(world, "io worker: all its extents are requested on the NUMA node of its rank", "[io_worker]") {
  extents->limit(2);
  save({page(0), page(1), page(2), page(3)}, ones);
  save({page(4)}, ones);
  CHECK(stats().frames == 8);
  REQUIRE(extents->wishes.size() >= 2);
  for (const auto& wish : extents->wishes)
    CHECK(wish == 3U);
}

TEST_CASE_METHOD(world, "io worker: a drain writes dirty pages and refuses new requests", "[io_worker]") {
  hold_all();
  save({page(2)}, ones);
  const auto placed = place({page(3)});
  const auto first = begin(worker, drain_atom_v);
  const auto second = begin(worker, drain_atom_v);
  CHECK(ask(worker, place_atom_v, owner_id{1}, request({page(4)})).code() == errc::shutting_down);
  CHECK(ask(worker, fetch_atom_v, owner_id{1}, request({page(2)})).code() == errc::shutting_down);
  gather(page(3), placed.frames[0], ones);
  CHECK(fill(placed.pin, 1) == std::vector{errc::ok});
  CHECK_FALSE(client().answer_to(first).came);
  release_all();
  CHECK(client().answer_to(first).code() == errc::ok);
  CHECK(client().answer_to(second).code() == errc::ok);
  CHECK(ask(worker, drain_atom_v).code() == errc::ok);
  CHECK(stats().written_pages == 2);
}

TEST_CASE_METHOD(world, "io worker: its shutdown answers all requests and releases the slab", "[io_worker]") {
  save({page(0), page(1), page(2), page(3)}, ones);
  hold_all();
  save({page(5)}, ones);
  const auto reading = begin(worker, fetch_atom_v, owner_id{1}, request({page(0)}));
  const auto fencing = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{5, 1}}});
  const auto draining = begin(worker, drain_atom_v);
  end(worker);
  CHECK(client().answer_to(reading).code() == errc::shutting_down);
  CHECK(client().answer_to(fencing).code() == errc::shutting_down);
  CHECK(client().answer_to(draining).code() == errc::shutting_down);
  CHECK(ask(worker, stats_atom_v).code() == errc::unreachable);
  CHECK(io::slab_file::open({slab_path(), {1, 2}, "small", 0, slot_size, slots}, false));
}

TEST_CASE_METHOD(world, "io worker: a truncated slab is not written any more", "[io_worker]") {
  save({page(0), page(7)}, ones);
  save({page(1), page(2), page(3), page(4)}, twos);
  std::filesystem::resize_file(slab_path(), 2 * slot_size);
  advance(std::chrono::seconds(2));
  CHECK(codes_of(place({page(5)})) == std::vector{errc::slab_damaged});
  const auto found = fetch({page(0), page(7)});
  CHECK(codes_of(found) == std::vector{errc::ok, errc::slab_damaged});
  CHECK(holds(page(0), found.frames[0], ones));
  advance(std::chrono::seconds(5));
}

TEST_CASE_METHOD(world, "io worker: latencies are sent to the metrics", "[io_worker]") {
  save({page(0), page(1)}, ones);
  fetch({page(0)});
  advance(std::chrono::seconds(2));
  const auto sent = metrics.take_one<latency_batch>();
  const auto& samples = sent.get<latency_batch>(0).samples;
  REQUIRE(samples.size() == 2);
  CHECK(samples[0].kind == static_cast<std::uint32_t>(request_kind::write));
  CHECK(samples[0].items == 2);
  CHECK(samples[1].kind == static_cast<std::uint32_t>(request_kind::read));
}

} // namespace io_worker_test
