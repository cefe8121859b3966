#include "tests/actors/io_worker_support.hpp"
#include "tests/catch.hpp"

#include <algorithm>

namespace io_worker_test {

using namespace troupe;
using namespace troupe::test;

using world = io_worker_world;

TEST_CASE_METHOD(world, "io worker: what was written into a slot is read from it", "[io_worker]") {
  const auto segment = open().segment;
  std::fill_n(buffer(segment, 0).data(), slot_size, std::byte{0x11});
  std::fill_n(buffer(segment, 1).data(), slot_size, std::byte{0x22});
  CHECK(codes_of(ask(worker, write_atom_v, batch(segment, {item(3, 0), item(6, 1)}))) == std::vector(2, errc::ok));
  CHECK(codes_of(ask(worker, read_atom_v, batch(segment, {item(6, 4), item(3, 5)}))) == std::vector(2, errc::ok));
  CHECK(std::ranges::equal(buffer(segment, 4), buffer(segment, 1)));
  CHECK(std::ranges::equal(buffer(segment, 5), buffer(segment, 0)));
  CHECK(stats().written_pages == 2);
  CHECK(stats().read_bytes == 2 * slot_size);
  CHECK(stats().segment_bytes == 8 * slot_size);
}

TEST_CASE_METHOD(world, "io worker: a batch is answered when its last transfer has ended, with a code for each",
                 "[io_worker]") {
  const auto segment = open().segment;
  engine->set_plan([](const io::request&, std::uint64_t n) {
    fault out;
    out.held = true;
    out.status = n == 1 ? errc::no_space : errc::ok;
    return out;
  });
  const auto number = begin(worker, write_atom_v, batch(segment, {item(0, 0), item(1, 1), item(9, 2)}));
  CHECK(stats().in_flight == 2);
  const auto held = engine->held();
  REQUIRE(held.size() == 2);
  engine->release(held[1]);
  run();
  CHECK_FALSE(client().answer_to(number).came);
  engine->release(held[0]);
  run();
  CHECK(codes_of(client().answer_to(number)) == std::vector{errc::ok, errc::no_space, errc::out_of_range});
  CHECK(stats().in_flight == 0);
}

TEST_CASE_METHOD(world, "io worker: a fence waits for the kernel and then keeps the old owner out", "[io_worker]") {
  const auto segment = open().segment;
  hold_all();
  const auto writing = begin(worker, write_atom_v, batch(segment, {item(2, 0)}));
  const auto fencing = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{2, 1}}});
  const auto other = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{5, 1}}});
  CHECK(client().answer_to(other).code() == errc::ok);
  CHECK_FALSE(client().answer_to(fencing).came);
  advance(std::chrono::minutes(1));
  CHECK_FALSE(client().answer_to(fencing).came);
  release_all();
  CHECK(codes_of(client().answer_to(writing)) == std::vector{errc::ok});
  CHECK(client().answer_to(fencing).code() == errc::ok);
  engine->set_plan({});
  CHECK(codes_of(ask(worker, write_atom_v, batch(segment, {item(2, 0), item(2, 0, 2)}))) ==
        std::vector{errc::stale, errc::ok});
}

TEST_CASE_METHOD(world, "io worker: what takes too long is answered when the kernel lets go", "[io_worker]") {
  const auto segment = open().segment;
  hold_all();
  const auto number = begin(worker, read_atom_v, batch(segment, {item(2, 0)}));
  advance(std::chrono::seconds(6));
  engine->set_now(now());
  CHECK_FALSE(client().answer_to(number).came);
  release_all();
  CHECK(codes_of(client().answer_to(number)) == std::vector{errc::timeout});
  CHECK(stats().timed_out == 1);
}

TEST_CASE_METHOD(world, "io worker: the memory of a dead client goes when the kernel is done with it", "[io_worker]") {
  const auto segment = open(1).segment;
  const auto other = open(2).segment;
  hold_all();
  const auto number = begin(worker, write_atom_v, batch(segment, {item(2, 0)}));
  CHECK(ask(worker, owner_died_atom_v, owner_id{1}).code() == errc::ok);
  CHECK(ask(worker, read_atom_v, batch(segment, {item(2, 0)})).code() == errc::expired);
  CHECK(stats().segment_bytes == 16 * slot_size);
  release_all();
  CHECK(codes_of(client().answer_to(number)) == std::vector{errc::ok});
  CHECK(stats().segment_bytes == 8 * slot_size);
  engine->set_plan({});
  CHECK(codes_of(ask(worker, read_atom_v, batch(other, {item(2, 0)}))) == std::vector{errc::ok});
}

TEST_CASE_METHOD(world, "io worker: segments are limited, closed once, and cannot be used after", "[io_worker]") {
  const auto info = open();
  CHECK(ask(worker, open_segment_atom_v, owner_id{1}, 9 * slot_size, std::int32_t{-1}).code() == errc::limit_exceeded);
  CHECK(ask(worker, open_segment_atom_v, owner_id{1}, ~std::uint64_t{0}, std::int32_t{-1}).code() ==
        errc::limit_exceeded);
  CHECK(ask(worker, open_segment_atom_v, owner_id{1}, std::uint64_t{0}, std::int32_t{-1}).code() ==
        errc::invalid_argument);
  CHECK(ask(worker, close_segment_atom_v, info.segment).code() == errc::ok);
  CHECK(ask(worker, close_segment_atom_v, info.segment).code() == errc::not_found);
  CHECK(ask(worker, write_atom_v, batch(info.segment, {item(0, 0)})).code() == errc::expired);
  CHECK(open().segment != info.segment);
}

TEST_CASE_METHOD(world, "io worker: a drain waits for what is under way, and refuses the rest", "[io_worker]") {
  const auto segment = open().segment;
  hold_all();
  const auto writing = begin(worker, write_atom_v, batch(segment, {item(2, 0)}));
  const auto first = begin(worker, drain_atom_v);
  const auto second = begin(worker, drain_atom_v);
  CHECK(ask(worker, write_atom_v, batch(segment, {item(3, 0)})).code() == errc::shutting_down);
  CHECK(ask(worker, open_segment_atom_v, owner_id{5}, slot_size, std::int32_t{-1}).code() == errc::shutting_down);
  CHECK_FALSE(client().answer_to(first).came);
  release_all();
  CHECK(codes_of(client().answer_to(writing)) == std::vector{errc::ok});
  CHECK(client().answer_to(first).code() == errc::ok);
  CHECK(client().answer_to(second).code() == errc::ok);
  CHECK(ask(worker, drain_atom_v).code() == errc::ok);
}

TEST_CASE_METHOD(world, "io worker: its end answers everybody and gives the slab back", "[io_worker]") {
  const auto segment = open().segment;
  hold_all();
  const auto writing = begin(worker, write_atom_v, batch(segment, {item(2, 0)}));
  const auto fencing = begin(worker, fence_atom_v, slot_batch{std::vector<slot_ref>{{2, 1}}});
  const auto draining = begin(worker, drain_atom_v);
  end(worker);
  CHECK(client().answer_to(writing).code() == errc::shutting_down);
  CHECK(client().answer_to(fencing).code() == errc::shutting_down);
  CHECK(client().answer_to(draining).code() == errc::shutting_down);
  CHECK(ask(worker, stats_atom_v).code() == errc::unreachable);
  CHECK(io::slab_file::open({slab_path(), {1, 2}, "small", 0, slot_size, slots}, false));
}

TEST_CASE_METHOD(world, "io worker: a slab that was truncated is not written any more", "[io_worker]") {
  const auto segment = open().segment;
  CHECK(codes_of(ask(worker, write_atom_v, batch(segment, {item(0, 0), item(7, 1)}))) == std::vector(2, errc::ok));
  std::filesystem::resize_file(slab_path(), 2 * slot_size);
  advance(std::chrono::seconds(2));
  CHECK(codes_of(ask(worker, write_atom_v, batch(segment, {item(0, 0)}))) == std::vector{errc::slab_damaged});
  CHECK(codes_of(ask(worker, read_atom_v, batch(segment, {item(0, 2), item(7, 3)}))) ==
        std::vector{errc::ok, errc::slab_damaged});
  advance(std::chrono::seconds(5));
}

TEST_CASE_METHOD(world, "io worker: latencies go to the metrics", "[io_worker]") {
  const auto segment = open().segment;
  CHECK(ask(worker, write_atom_v, batch(segment, {item(0, 0), item(1, 1)})).code() == errc::ok);
  CHECK(ask(worker, read_atom_v, batch(segment, {item(0, 0)})).code() == errc::ok);
  advance(std::chrono::seconds(2));
  const auto sent = metrics.take_one<latency_batch>();
  REQUIRE(sent.get<latency_batch>(0).samples.size() == 2);
  CHECK(sent.get<latency_batch>(0).samples[0].kind == static_cast<std::uint32_t>(request_kind::write));
  CHECK(sent.get<latency_batch>(0).samples[0].items == 2);
}

} // namespace io_worker_test
