#include "tests/unit/io_worker_rules.hpp"

namespace io_worker_slab_test {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

TEST_CASE("io worker: a filled page is readable from memory at once and written back later", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(3), w.page(9)}));
  REQUIRE(w.codes_of(placed) == codes{errc::ok, errc::ok});
  CHECK(placed.pin != 0);
  CHECK(placed.frames[0].offset == 0);
  CHECK(placed.frames[1].offset == slot_bytes);
  CHECK(w.checks.empty());
  for (std::size_t i = 0; i < 2; ++i)
    io::seal_page(std::span(w.memory[0]).subspan(placed.frames[i].offset, slot_bytes),
                  {{1, 2}, w.page(i == 0 ? 3 : 9).key, 0, w.page(i == 0 ? 3 : 9).where, slot_bytes - 4096});
  CHECK(w.fill(placed.pin, {errc::ok, errc::ok}) == codes{errc::ok, errc::ok});
  CHECK(w.state.stats().dirty_pages == 2);

  const auto fetched = w.reply(w.fetch({w.page(9), w.page(3)}));
  CHECK(w.codes_of(fetched) == codes{errc::ok, errc::ok});
  CHECK(fetched.frames[0].offset == placed.frames[1].offset);
  CHECK(fetched.frames[1].offset == placed.frames[0].offset);
  CHECK(fetched.frames[0].promoted == 0);
  CHECK(w.state.stats().memory_hits == 2);

  REQUIRE(w.checks.size() == 2);
  CHECK(w.checks[0].page == w.page(3));
  CHECK(w.checks[0].offset == placed.frames[0].offset);
  CHECK(w.requests.empty());
  w.pass_checks();
  REQUIRE(w.requests.size() == 2);
  CHECK(w.requests[0].op == io::operation::write);
  CHECK(w.requests[0].where == slot_ref{3, 1});
  CHECK(w.requests[0].data == w.memory[0].data());
  CHECK(w.requests[0].length == slot_bytes);
  CHECK_FALSE(w.state.quiesced());
  w.complete();
  CHECK(w.state.quiesced());
  CHECK(w.state.stats().dirty_pages == 0);
  CHECK(w.state.stats().resident_pages == 2);
  CHECK(w.state.stats().written_pages == 2);
  w.unpin(fetched.pin);
  CHECK(w.state.stats().pinned_frames == 0);
}

TEST_CASE("io worker: pages are counted by client while it is attached", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(3), w.page(9)}));
  CHECK(w.fill(placed.pin, {errc::ok, errc::io_error}) == codes{errc::ok, errc::io_error});
  w.unpin(w.reply(w.fetch({w.page(3)})).pin);
  w.unpin(w.reply(w.fetch({w.page(3)})).pin);
  CHECK(w.state.stats().owners == std::vector<owner_pages>{{1, 2, 1}});
  // Its last save arrives after its end has become known.
  const auto last = w.reply(w.place({w.page(4)}));
  w.state.owner_died(1, w.now);
  w.flush();
  CHECK(w.state.stats().owners.empty());
  w.fill(last.pin, {errc::ok});
  CHECK(w.state.stats().owners.empty());
  CHECK(w.state.stats().saved_pages == 2);
}

TEST_CASE("io worker: what is behind an encoded page in its frame is not written", "[io_worker_state][encoding]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(9)}));
  const std::span<std::byte> frame(w.memory[0].data() + placed.frames[0].offset, slot_bytes);
  const io::stored_payload stored{page_encoding::bf16, 0, {}}; // a slot has room for one block
  io::seal_page(frame, {{1, 2}, w.page(9).key, 0, w.page(9).where, slot_bytes - io::page_header_bytes}, stored);
  CHECK(w.fill(placed.pin, {errc::ok}) == codes{errc::ok});
  CHECK(w.state.stats().saved_payload_bytes == slot_bytes - io::page_header_bytes);
  CHECK(w.state.stats().saved_stored_bytes == 0);
  w.pass_checks();
  REQUIRE(w.requests.size() == 1);
  CHECK(w.requests[0].data == frame.data());
  CHECK(w.requests[0].length == io::slot_bytes(0));
  CHECK(w.requests[0].length < slot_bytes);
  w.complete();
  CHECK(w.state.stats().written_bytes == io::slot_bytes(0));
}

TEST_CASE("io worker: a store of whole slots gets zeroes behind an encoded page", "[io_worker_state][encoding]") {
  auto how = worker::rules();
  how.whole_slots = true;
  worker w(how);
  const auto placed = w.reply(w.place({w.page(9)}));
  const std::span<std::byte> frame(w.memory[0].data() + placed.frames[0].offset, slot_bytes);
  std::ranges::fill(frame, std::byte{0x55});
  const io::stored_payload stored{page_encoding::bf16, 0, {}}; // a slot has room for one block
  io::seal_page(frame, {{1, 2}, w.page(9).key, 0, w.page(9).where, slot_bytes - io::page_header_bytes}, stored);
  CHECK(w.fill(placed.pin, {errc::ok}) == codes{errc::ok});
  w.pass_checks();
  REQUIRE(w.requests.size() == 1);
  CHECK(w.requests[0].length == slot_bytes);
  CHECK(std::ranges::all_of(frame.subspan(io::page_header_bytes), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("io worker: a fence refuses older generations permanently", "[io_worker_state]") {
  worker w;
  const auto id = w.fence({{3, 4}, {99, 1}});
  CHECK(w.is_fenced(id));
  CHECK(w.codes_of(w.reply(w.place({w.page(3, 4), w.page(3, 2)}))) == codes{errc::stale, errc::stale});
  CHECK(w.codes_of(w.reply(w.fetch({w.page(3, 4)}))) == codes{errc::stale});
  w.fence({{3, 2}}); // one that is late takes nothing back
  CHECK(w.codes_of(w.reply(w.place({w.page(3, 3), w.page(3, 5)}))) == codes{errc::stale, errc::ok});
  CHECK(w.state.stats().fenced == 4);
}

TEST_CASE("io worker: a fence waits for the slab and not for clients, which keep their frames", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  SECTION("a late writer publishes nothing, and its frame is not reused meanwhile") {
    CHECK(w.is_fenced(w.fence({{0, 1}})));
    CHECK(w.state.stats().orphaned_frames == 1);
    const auto others = w.reply(w.place({w.page(0, 2), w.page(1), w.page(2)}, 2));
    for (const auto& x : others.frames) {
      CHECK(x.code() == errc::ok);
      CHECK(x.offset != placed.frames[0].offset);
    }
    const auto last = w.place({w.page(3)}, 2);
    CHECK_FALSE(w.answered(last));
    CHECK(w.fill(placed.pin, {errc::ok}) == codes{errc::stale});
    CHECK(w.reply(last).frames[0].offset == placed.frames[0].offset);
  }
  SECTION("a reader keeps its frame") {
    w.fill(placed.pin, {errc::ok});
    w.write_all();
    const auto fetched = w.reply(w.fetch({w.page(0)}));
    CHECK(w.is_fenced(w.fence({{0, 1}})));
    CHECK(w.state.stats().orphaned_frames == 1);
    CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::stale});
    w.unpin(fetched.pin);
    CHECK(w.state.stats().orphaned_frames == 0);
  }
  SECTION("the check or write of a page ends first") {
    w.fill(placed.pin, {errc::ok});
    if (GENERATE(true, false))
      w.pass_checks();
    const auto fence = w.fence({{0, 1}});
    const auto second = w.fence({{0, 1}, {1, 1}});
    CHECK_FALSE(w.is_fenced(fence));
    CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::stale});
    w.pass_checks();
    w.complete();
    CHECK(w.is_fenced(fence));
    CHECK(w.is_fenced(second));
    CHECK(w.state.stats().resident_pages == 0);
    CHECK(w.damaged.empty());
  }
  SECTION("a page that is being read is not delivered") {
    w.fill(placed.pin, {errc::ok});
    w.write_all();
    w.store({w.page(1), w.page(2), w.page(3), w.page(4)});
    const auto fetching = w.fetch({w.page(0)});
    REQUIRE(w.requests.size() == 1);
    const auto fence = w.fence({{0, 1}});
    CHECK_FALSE(w.is_fenced(fence));
    CHECK_FALSE(w.answered(fetching));
    w.complete();
    CHECK(w.is_fenced(fence));
    CHECK(w.codes_of(w.reply(fetching)) == codes{errc::stale});
    CHECK(w.state.stats().pinned_frames == 0);
  }
}

TEST_CASE("io worker: a waiting request gets an error when its slot is fenced meanwhile", "[io_worker_state]") {
  worker w;
  const auto held = w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)}));
  const auto waiting = w.place({w.page(4), w.page(5)}, 2);
  w.fence({{4, 1}});
  w.fill(held.pin, codes(4, errc::cancelled));
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::stale, errc::ok});
}

TEST_CASE("io worker: with write-through a page counts as stored when it is in the slab", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_through = true;
  worker w(rules);
  const auto placed = w.reply(w.place({w.page(0), w.page(1), w.page(2)}));
  fill_request work{placed.pin, {}, patience};
  for (const auto code : {errc::ok, errc::ok, errc::cancelled})
    work.gathered.items.push_back(static_cast<std::uint8_t>(code));
  const auto id = w.state.fill(1, work, w.now);
  REQUIRE(id);
  w.flush();
  CHECK(w.filled(*id).empty());
  w.pass_checks();
  CHECK(w.filled(*id).empty());
  REQUIRE(w.requests.size() == 2);
  SECTION("the write fails") {
    w.state.complete(std::array{io::completion{w.requests[0].tag, errc::ok, 0}}, w.now);
    w.flush();
    CHECK(w.filled(*id).empty());
    w.state.complete(std::array{io::completion{w.requests[1].tag, errc::no_space, 0}}, w.now);
    w.flush();
    CHECK(w.filled(*id) == codes{errc::ok, errc::no_space, errc::cancelled});
  }
  SECTION("its slot was released") {
    w.fence({{1, 1}});
    w.complete();
    CHECK(w.filled(*id) == codes{errc::ok, errc::stale, errc::cancelled});
  }
}

TEST_CASE("io worker: a page that waits to be written and loses its slot is answered", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_through = true;
  rules.writes_max = 1;
  worker w(rules);
  const auto placed = w.reply(w.place({w.page(0), w.page(1)}));
  const fill_request work{placed.pin, packed<std::uint8_t>{{0, 0}}, patience};
  const auto id = w.state.fill(1, work, w.now);
  w.flush();
  REQUIRE(w.checks.size() == 1);
  CHECK(w.is_fenced(w.fence({{1, 1}})));
  w.write_all();
  CHECK(w.filled(*id) == codes{errc::ok, errc::stale});
}

TEST_CASE("io worker: a page that could not be written is kept and written later", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  w.fill(placed.pin, {errc::ok});
  w.pass_checks();
  w.complete(errc::no_space);
  CHECK(w.state.needs_ticks());
  CHECK_FALSE(w.state.quiesced());
  CHECK(w.state.stats().dirty_pages == 1);
  CHECK(w.state.stats().failed == 1);
  CHECK(w.state.write_trouble() == errc::no_space);
  w.pass_time(999 * ms);
  CHECK(w.checks.empty());
  w.pass_time(1 * ms);
  CHECK(w.checks.size() == 1);
  w.write_all();
  CHECK(w.state.quiesced());
  // A successful write does not clear the error: while some writes fail, it stays reported.
  CHECK(w.state.write_trouble() == errc::no_space);
  w.pass_time(58'999 * ms);
  CHECK(w.state.write_trouble() == errc::no_space);
  w.pass_time(1 * ms);
  CHECK(w.state.write_trouble() == errc::ok);
}

TEST_CASE("io worker: a page that a client has overwritten is not written and is dropped", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  w.fill(placed.pin, {errc::ok});
  w.pass_checks(errc::corrupt);
  CHECK(w.requests.empty());
  REQUIRE(w.damaged.size() == 1);
  CHECK(w.damaged[0].page == w.page(0));
  CHECK(w.damaged[0].why == errc::corrupt);
  CHECK(w.damaged[0].tier == page_tier::memory);
  CHECK(w.state.stats().resident_pages == 0);
  CHECK(w.state.stats().damaged_pages == 1);
  CHECK(w.state.quiesced());
  // It is not in the slab either: the bytes there are not the page, which a load detects.
  w.fetch({w.page(0)});
  CHECK(w.requests.size() == 1);
}

TEST_CASE("io worker: a damaged slab is read and not written", "[io_worker_state]") {
  worker w;
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  const auto placed = w.reply(w.place({w.page(4)}));
  w.state.slab_is_damaged();
  CHECK(w.fill(placed.pin, {errc::ok}) == codes{errc::slab_damaged});
  CHECK(w.codes_of(w.reply(w.place({w.page(5)}))) == codes{errc::slab_damaged});
  w.fetch({w.page(0)});
  CHECK(w.requests.size() == 1);
  w.complete();
  CHECK(w.state.quiesced());
}

TEST_CASE("io worker: a slab that is found damaged while a page is checked is not written", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_through = true;
  worker w(rules);
  const auto pin = w.reply(w.place({w.page(0)})).pin;
  fill_request gathered{pin, std::vector{std::uint8_t{0}}, patience};
  const auto id = w.state.fill(1, gathered, w.now);
  REQUIRE(id);
  w.flush();
  REQUIRE(w.checks.size() == 1);
  w.state.slab_is_damaged();
  w.pass_checks();
  CHECK(w.requests.empty());
  CHECK(w.filled(*id) == codes{errc::slab_damaged});
  CHECK(w.state.quiesced());
}

TEST_CASE("io worker: at shutdown all pages that are only in memory are written", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_eagerly = false;
  worker w(rules, 4);
  const auto placed = w.reply(w.place({w.page(0), w.page(1)}));
  const auto other = w.reply(w.place({w.page(2)}));
  w.fill(placed.pin, {errc::ok, errc::ok});
  CHECK(w.checks.empty());
  w.state.drain(w.now);
  w.flush();
  CHECK_FALSE(w.state.quiesced());
  CHECK(w.checks.size() == 2);
  CHECK(w.fill(other.pin, {errc::ok}) == codes{errc::ok});
  w.write_all();
  CHECK(w.state.quiesced());
  CHECK(w.state.stats().written_pages == 3);
}

TEST_CASE("io worker: with lazy write-back some pages are written before memory runs short", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_eagerly = false;
  worker w(rules, 2);
  std::vector<page_ref> seven;
  for (slot_number slot = 0; slot < 7; ++slot)
    seven.push_back(w.page(slot));
  w.fill(w.reply(w.place(seven)).pin, codes(7, errc::ok));
  CHECK(w.checks.empty());
  w.fill(w.reply(w.place({w.page(7)})).pin, {errc::ok});
  CHECK(w.checks.size() == 1);
  CHECK(w.checks[0].page == w.page(0));
  w.write_all();
  CHECK(w.state.stats().dirty_pages == 7);
}

TEST_CASE("io worker: a request that waits for memory triggers writes although other pages are clean and pinned",
          "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_eagerly = false;
  worker w(rules);
  w.fill(w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)})).pin, codes(4, errc::ok));
  w.write_all();
  REQUIRE(w.state.stats().dirty_pages == 3);
  const auto read = w.reply(w.fetch({w.page(0)}));
  const auto waiting = w.place({w.page(4), w.page(5)}, 2);
  CHECK_FALSE(w.answered(waiting));
  CHECK(w.checks.size() == 2);
  w.write_all();
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok, errc::ok});
  w.unpin(read.pin);
}

TEST_CASE("io worker: in memory-only mode nothing is written, and missing pages are not found", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.memory_only = true;
  worker w(rules);
  w.fill(w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)})).pin, codes(4, errc::ok));
  CHECK(w.checks.empty());
  CHECK(w.state.quiesced());
  const auto fetched = w.reply(w.fetch({w.page(3), w.page(4)}));
  CHECK(w.codes_of(fetched) == codes{errc::ok, errc::not_found});
  // Only a fence makes room.
  const auto waiting = w.place({w.page(5)});
  CHECK_FALSE(w.answered(waiting));
  CHECK(w.is_fenced(w.fence({{0, 1}})));
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok});
}

TEST_CASE("io worker: an unknown or repeated completion or check result changes nothing", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  w.fill(placed.pin, {errc::ok});
  const auto number = w.checks.at(0).number;
  w.state.checked(number + 7, errc::corrupt, w.now);
  w.pass_checks();
  const auto tag = w.requests.at(0).tag;
  w.state.complete(std::array{io::completion{tag + 7, errc::io_error, 0}}, w.now);
  w.complete();
  w.state.complete(std::array{io::completion{tag, errc::io_error, 0}}, w.now);
  w.state.checked(number, errc::corrupt, w.now);
  w.flush();
  CHECK(w.state.stats().written_pages == 1);
  CHECK(w.state.stats().failed == 0);
  CHECK(w.damaged.empty());
}

TEST_CASE("io worker: the number of parallel reads and writes is bounded", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.reads_max = 2;
  rules.writes_max = 3;
  worker w(rules);
  w.fill(w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)})).pin, codes(4, errc::ok));
  CHECK(w.checks.size() == 3);
  w.pass_checks();
  w.complete();
  CHECK(w.checks.size() == 1);
  w.write_all();
  w.store({w.page(4), w.page(5), w.page(6), w.page(7)});
  const auto fetching = w.fetch({w.page(0), w.page(1), w.page(2)});
  CHECK(w.requests.size() == 2);
  w.complete();
  CHECK(w.requests.size() == 1);
  CHECK_FALSE(w.answered(fetching));
  w.complete();
  CHECK(w.codes_of(w.reply(fetching)) == codes(3, errc::ok));
}

} // namespace io_worker_slab_test
