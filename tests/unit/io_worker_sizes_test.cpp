#include "tests/unit/io_worker_rules.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

/// Frames of two sizes, one rule at a time; io_worker_sizes_random_test.cpp has the bytes.

namespace io_worker_sizes_test {

namespace {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

/// An extent has four whole frames, or eight for encoded pages.
io_worker_options two_sizes(bool memory_only = false) {
  auto out = worker::rules();
  out.encoded_bytes = slot_bytes / 2;
  out.memory_only = memory_only;
  out.write_eagerly = false;
  return out;
}

frame_request request_of(std::vector<page_ref> pages, frame_size size) {
  auto out = worker::request(std::move(pages));
  out.sizes.items.assign(out.pages.size(), static_cast<std::uint8_t>(size));
  return out;
}

io_worker_state::request_id place(worker& w, std::vector<page_ref> pages, frame_size size) {
  const auto id = w.state.place(1, request_of(std::move(pages), size), w.now);
  REQUIRE(id);
  w.flush();
  return *id;
}

std::vector<page_ref> pages(slot_number first, std::uint32_t count) {
  std::vector<page_ref> out;
  for (std::uint32_t i = 0; i < count; ++i)
    out.push_back(worker::page(first + i));
  return out;
}

std::uint64_t encoded_ones(const frame_reply& x) {
  return static_cast<std::uint64_t>(std::ranges::count_if(x.frames.items, &page_frame::is_encoded));
}

void save(worker& w, std::vector<page_ref> what, frame_size size) {
  const codes all(what.size(), errc::ok);
  const auto pin = w.reply(place(w, std::move(what), size)).pin;
  REQUIRE(w.fill(pin, all) == all);
}

} // namespace

TEST_CASE("frames of two sizes: a rank with one extent keeps whole frames, and encoded pages use them",
          "[io_worker_state][encoding]") {
  worker w(two_sizes(GENERATE(true, false)), 1);
  save(w, pages(0, 4), frame_size::encoded);
  // More pages wait for memory, again and again.
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(place(w, pages(4, 1), frame_size::encoded));
    w.pass_time(std::chrono::seconds(1));
    w.state.empty_some(w.now);
    w.flush();
    w.write_all();
    CHECK(w.state.frames().extents(frame_size::whole) == 1);
    for (const auto& x : w.frames)
      CHECK(encoded_ones(x.reply) == 0);
    for (auto& x : std::exchange(w.frames, {}))
      if (x.reply.pin != 0)
        w.fill(x.reply.pin, {errc::cancelled});
  }
}

TEST_CASE("frames of two sizes: the extents after the first are for what is asked for", "[io_worker_state][encoding]") {
  worker w(two_sizes(), 3);
  CHECK(encoded_ones(w.reply(place(w, pages(0, 2), frame_size::whole))) == 0);
  // The only whole extent has free frames, which no other page uses.
  CHECK(encoded_ones(w.reply(place(w, pages(2, 4), frame_size::encoded))) == 2);
  CHECK(encoded_ones(w.reply(place(w, pages(6, 6), frame_size::encoded))) == 6);
  CHECK(w.state.stats().encoded_extents == 1);
  CHECK(w.state.stats().memory_bytes == 2 * worker::extent_bytes);
}

TEST_CASE("frames of two sizes: free extents of one size become the other's at once", "[io_worker_state][encoding]") {
  worker w(two_sizes(true), 3);
  // As an allocator does, which asks for slots before anything is placed.
  std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(worker::extent_bytes));
  for (std::uint32_t i = 0; i < 3; ++i)
    w.state.add_extent({i, i * worker::extent_bytes, memory[i], i}, w.now);
  w.extents_left = 0;
  CHECK(w.state.frames().lasting() == 12);
  CHECK(encoded_ones(w.reply(place(w, pages(0, 8), frame_size::encoded))) == 8);
  CHECK(w.state.frames().lasting() == 16);
  const auto second = w.reply(place(w, pages(8, 4), frame_size::encoded));
  CHECK(encoded_ones(second) == 4);
  w.fill(second.pin, codes(4, errc::cancelled));
  CHECK(w.state.frames().lasting() == 20);
  // The last whole extent stays.
  CHECK(w.state.frames().extents(frame_size::whole) == 1);
  CHECK(encoded_ones(w.reply(place(w, pages(12, 1), frame_size::whole))) == 0);
}

TEST_CASE("frames of two sizes: a page that needs a whole frame gets one where encoded pages fill memory only",
          "[io_worker_state][encoding]") {
  worker w(two_sizes(true), 2);
  save(w, pages(0, 4), frame_size::encoded);
  save(w, pages(4, 8), frame_size::encoded);
  REQUIRE(w.state.stats().encoded_extents == 1);
  // An encoded page is evicted by the allocator, which does not free a whole frame.
  w.fence({{11, 1}});
  const auto reply = w.reply(place(w, pages(12, 1), frame_size::whole));
  CHECK(worker::codes_of(reply) == codes{errc::ok});
  CHECK(encoded_ones(reply) == 0);
  // The page that was used longest ago of those in whole frames went, and its shard is notified.
  REQUIRE(w.dropped.size() == 1);
  CHECK(w.dropped[0].where.slot < 4);
}

TEST_CASE("frames of two sizes: a request that has all whole frames is answered at once",
          "[io_worker_state][encoding]") {
  auto rules = two_sizes(true);
  rules.pinned_bytes_max = 100 * slot_bytes;
  worker w(rules, 2);
  save(w, pages(0, 4), frame_size::whole);
  save(w, pages(4, 8), frame_size::encoded);
  w.fence({{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  const auto id = place(w, pages(12, 4), frame_size::whole);
  CHECK(w.answered(id));
  const auto more = w.state.place(1, request_of({worker::page(0, 2)}, frame_size::whole), w.now);
  REQUIRE(more);
  w.flush();
  // Not before its time has passed: the other request may end.
  CHECK_FALSE(w.answered(*more));
  w.fill(w.reply(id).pin, codes(4, errc::cancelled));
  CHECK(w.answered(*more));
  auto all = request_of(pages(12, 4), frame_size::whole);
  all.pages.items.push_back(worker::page(1, 2));
  all.sizes.items.push_back(0);
  const auto too_many = w.state.place(1, all, w.now);
  REQUIRE(too_many);
  w.fill(w.reply(*more).pin, codes{errc::cancelled});
  CHECK(w.answered(*too_many));
  CHECK(std::ranges::count(worker::codes_of(w.reply(*too_many)), errc::full) == 1);
}

TEST_CASE("frames of two sizes: pages in memory only move to larger frames", "[io_worker_state][encoding]") {
  worker w(two_sizes(true), 2);
  save(w, pages(0, 4), frame_size::encoded);
  save(w, pages(4, 8), frame_size::encoded);
  w.fence({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}});
  REQUIRE(w.state.begin_emptying(true, std::chrono::seconds(5), w.now));
  w.state.empty_some(w.now);
  w.flush();
  REQUIRE(w.emptied.size() == 1);
  CHECK(w.emptied[0].code == errc::ok);
  CHECK(w.dropped.empty());
  for (const slot_number slot : {8U, 9U, 10U, 11U})
    w.load(worker::page(slot));
  CHECK(w.state.frames().extents(frame_size::whole) == 1);
}

TEST_CASE("frames of two sizes: a rank gives the extent that has no page", "[io_worker_state][encoding]") {
  worker w(two_sizes(true), 4);
  save(w, pages(0, 4), frame_size::whole);
  save(w, pages(4, 4), frame_size::whole);
  save(w, pages(8, 4), frame_size::encoded);
  w.fence({{8, 1}, {9, 1}, {10, 1}, {11, 1}});
  save(w, pages(12, 4), frame_size::encoded);
  w.fence({{12, 1}, {13, 1}, {14, 1}, {15, 1}});
  REQUIRE(w.state.begin_emptying(true, std::chrono::seconds(5), w.now));
  w.state.empty_some(w.now);
  w.flush();
  REQUIRE(w.emptied.size() == 1);
  CHECK(w.emptied[0].code == errc::ok);
  CHECK(w.dropped.empty());
  CHECK(w.state.frames().extents(frame_size::whole) == 2);
}

} // namespace io_worker_sizes_test
