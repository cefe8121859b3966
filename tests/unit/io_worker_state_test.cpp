#include "actors/node/io_worker/io_worker_state.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <vector>

namespace io_worker_state_test {

namespace {

using namespace troupe;

constexpr timestamp t0{std::chrono::hours(1)};
constexpr std::chrono::milliseconds ms{1};
constexpr std::uint64_t slot_bytes = 8192;
constexpr auto patience = std::chrono::seconds(1);

using codes = std::vector<errc>;

/// A state with extents of four frames.
struct worker {
  static io_worker_options rules() {
    io_worker_options out;
    out.slots = 16;
    out.slot_bytes = slot_bytes;
    out.deadline_max = std::chrono::seconds(10);
    out.batch_pages_max = 8;
    out.pinned_bytes_max = 12 * slot_bytes;
    out.waiting_max = 3;
    return out;
  }

  explicit worker(const io_worker_options& options = rules(), std::size_t extents = 1)
      : state(options), extents_left(extents) {}

  static constexpr std::uint64_t extent_bytes = 4 * slot_bytes;

  io_worker_state state;
  std::size_t extents_left;
  std::vector<std::vector<std::byte>> memory{};
  timestamp now = t0;
  std::vector<io_worker_state::answered_frames> frames{};
  std::vector<io_worker_state::answered_fill> fills{};
  std::vector<io_worker_state::fence_id> fenced{};
  std::vector<io::page_request> requests{};
  std::vector<io_worker_state::page_check> checks{};
  std::vector<std::pair<page_ref, errc>> damaged{};

  static page_ref page(slot_number slot, generation_number generation = 1) {
    return {key_digest{slot, generation}, {slot, generation}};
  }
  static frame_request request(std::vector<page_ref> pages, duration limit = patience) {
    frame_request out;
    out.pages.items = std::move(pages);
    out.patience = limit;
    return out;
  }

  /// What the actor does after each call.
  void flush() {
    while (state.wants_extent()) {
      if (extents_left == 0) {
        state.no_extent(false, now);
        continue;
      }
      --extents_left;
      const auto number = static_cast<std::uint32_t>(memory.size());
      auto& bytes = memory.emplace_back(extent_bytes);
      state.add_extent({number, number * extent_bytes, bytes, number}, now);
    }
    const auto move_to = [](auto& to, auto from) { to.insert(to.end(), from.begin(), from.end()); };
    move_to(frames, state.take_frames());
    move_to(fills, state.take_fills());
    move_to(fenced, state.take_fenced());
    move_to(requests, state.take_requests());
    move_to(checks, state.take_checks());
    move_to(damaged, state.take_damaged());
    REQUIRE(state.check() == "");
  }

  io_worker_state::request_id place(std::vector<page_ref> pages, owner_id owner = 1, duration limit = patience) {
    const auto id = state.place(owner, request(std::move(pages), limit), now);
    REQUIRE(id);
    flush();
    return *id;
  }
  io_worker_state::request_id fetch(std::vector<page_ref> pages, owner_id owner = 1, duration limit = patience) {
    const auto id = state.fetch(owner, request(std::move(pages), limit), now);
    REQUIRE(id);
    flush();
    return *id;
  }

  bool answered(io_worker_state::request_id id) const {
    return std::any_of(frames.begin(), frames.end(), [&](const auto& x) { return x.request == id; });
  }

  frame_reply reply(io_worker_state::request_id id) {
    const auto i = std::find_if(frames.begin(), frames.end(), [&](const auto& x) { return x.request == id; });
    REQUIRE(i != frames.end());
    REQUIRE(i->refused == errc::ok);
    auto out = std::move(i->reply);
    frames.erase(i);
    return out;
  }
  static codes codes_of(const frame_reply& x) {
    codes out;
    for (const auto& f : x.frames)
      out.push_back(f.code());
    return out;
  }

  /// Says of each page of the pin that it was gathered, or why not.
  codes fill(pin_number pin, const codes& said, owner_id owner = 1) {
    fill_request work{pin, {}, patience};
    for (const auto code : said)
      work.gathered.items.push_back(static_cast<std::uint8_t>(code));
    const auto id = state.fill(owner, work, now);
    REQUIRE(id);
    flush();
    return filled(*id);
  }
  /// Empty if that is not answered.
  codes filled(io_worker_state::request_id id) {
    const auto i = std::find_if(fills.begin(), fills.end(), [&](const auto& x) { return x.request == id; });
    codes out;
    if (i == fills.end())
      return out;
    for (const auto code : i->reply.results)
      out.push_back(static_cast<errc>(code));
    fills.erase(i);
    return out;
  }

  void unpin(pin_number pin, owner_id owner = 1) {
    REQUIRE(state.unpin(owner, pin, now));
    flush();
  }

  io_worker_state::fence_id fence(std::vector<slot_ref> slots) {
    const auto id = state.fence(slots, now);
    flush();
    return id;
  }
  bool is_fenced(io_worker_state::fence_id id) const {
    return std::find(fenced.begin(), fenced.end(), id) != fenced.end();
  }

  void pass_checks(errc verdict = errc::ok) {
    for (const auto& x : std::exchange(checks, {}))
      state.checked(x.number, verdict, now);
    flush();
  }
  void complete(errc status = errc::ok) {
    for (const auto& x : std::exchange(requests, {}))
      state.complete(std::array{io::completion{x.tag, status, 0}}, now);
    flush();
  }
  /// Everything that is to be written is.
  void write_all() {
    while (!checks.empty() || !requests.empty()) {
      pass_checks();
      complete();
    }
  }

  /// Pages that are in memory and in the slab.
  void store(std::vector<page_ref> pages) {
    const codes all(pages.size(), errc::ok);
    const auto pin = reply(place(std::move(pages))).pin;
    REQUIRE(fill(pin, all) == all);
    write_all();
  }

  void pass_time(duration x) {
    now += x;
    state.tick(now);
    flush();
  }
};

} // namespace

TEST_CASE("io worker: a page that is filled is read from memory at once, and written behind", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(3), w.page(9)}));
  REQUIRE(w.codes_of(placed) == codes{errc::ok, errc::ok});
  CHECK(placed.pin != 0);
  CHECK(placed.frames[0].offset == 0);
  CHECK(placed.frames[1].offset == slot_bytes);
  CHECK(w.checks.empty());
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
  CHECK_FALSE(w.state.at_rest());
  w.complete();
  CHECK(w.state.at_rest());
  CHECK(w.state.stats().dirty_pages == 0);
  CHECK(w.state.stats().resident_pages == 2);
  CHECK(w.state.stats().written_pages == 2);
  w.unpin(fetched.pin);
  CHECK(w.state.stats().pinned_frames == 0);
}

TEST_CASE("io worker: a page that has left memory is read again, once for all who want it", "[io_worker_state]") {
  worker w;
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.store({w.page(4)});
  CHECK(w.state.stats().demotions == 1);
  const auto first = w.fetch({w.page(0), w.page(4)});
  const auto second = w.fetch({w.page(0)}, 2);
  CHECK_FALSE(w.answered(first));
  CHECK_FALSE(w.answered(second));
  REQUIRE(w.requests.size() == 1);
  CHECK(w.requests[0].op == io::operation::read);
  CHECK(w.requests[0].where == slot_ref{0, 1});
  SECTION("and it is there") {
    w.complete();
    const auto a = w.reply(first);
    const auto b = w.reply(second);
    CHECK(w.codes_of(a) == codes{errc::ok, errc::ok});
    CHECK(a.frames[0].promoted == 1);
    CHECK(a.frames[1].promoted == 0);
    CHECK(a.frames[0].offset == b.frames[0].offset);
    CHECK(a.pin != b.pin);
    w.unpin(a.pin);
    CHECK(w.state.stats().pinned_frames == 1);
    w.unpin(b.pin, 2);
    CHECK(w.state.stats().pinned_frames == 0);
  }
  SECTION("or all learn why it is not") {
    w.complete(errc::io_error);
    CHECK(w.codes_of(w.reply(first)) == codes{errc::io_error, errc::ok});
    const auto b = w.reply(second);
    CHECK(w.codes_of(b) == codes{errc::io_error});
    CHECK(b.pin == 0);
    // The next one tries again.
    w.fetch({w.page(0)});
    CHECK(w.requests.size() == 1);
  }
}

TEST_CASE("io worker: every page has a code of its own", "[io_worker_state]") {
  worker w;
  w.fence({{5, 3}});
  CHECK(w.codes_of(w.reply(w.place({w.page(16), w.page(5, 3), w.page(5, 4)}))) ==
        codes{errc::out_of_range, errc::stale, errc::ok});
  CHECK(w.codes_of(w.reply(w.place({w.page(5, 4), w.page(6)}))) == codes{errc::busy, errc::ok});
  CHECK(w.codes_of(w.reply(w.fetch({w.page(16), w.page(5, 3), w.page(5, 4)}))) ==
        codes{errc::out_of_range, errc::stale, errc::busy});
  const auto none = w.reply(w.place({w.page(16)}));
  CHECK(none.pin == 0);
  CHECK(w.reply(w.place({})).pin == 0);
}

TEST_CASE("io worker: what was not gathered is not stored, and its frame is another's", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)}));
  const auto waiting = w.place({w.page(4), w.page(5)});
  CHECK_FALSE(w.answered(waiting));
  // What the client leaves out it has not gathered.
  CHECK(w.fill(placed.pin, {errc::ok, errc::device_error, errc::cancelled}) ==
        codes{errc::ok, errc::device_error, errc::cancelled, errc::internal});
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok, errc::ok});
  CHECK(w.checks.size() == 1);
  CHECK(w.state.stats().resident_pages == 1);
}

TEST_CASE("io worker: frames belong to who was given them", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  const fill_request work{placed.pin, {}, patience};
  CHECK(w.state.fill(2, work, w.now).error().code == errc::not_found);
  CHECK(w.state.unpin(1, placed.pin, w.now).error().code == errc::not_found);
  CHECK(w.fill(placed.pin, {errc::ok}) == codes{errc::ok});
  CHECK(w.state.fill(1, work, w.now).error().code == errc::not_found);
  const auto fetched = w.reply(w.fetch({w.page(0)}));
  CHECK(w.state.unpin(2, fetched.pin, w.now).error().code == errc::not_found);
  CHECK(w.state.fill(1, {fetched.pin, {}, patience}, w.now).error().code == errc::not_found);
  w.unpin(fetched.pin);
  CHECK(w.state.unpin(1, fetched.pin, w.now).error().code == errc::not_found);
}

TEST_CASE("io worker: pins have other numbers in another run", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.first_pin = 1000;
  worker w(rules);
  CHECK(w.reply(w.place({w.page(0)})).pin == 1001);
}

TEST_CASE("io worker: a request is refused as a whole beyond its limits", "[io_worker_state]") {
  worker w(worker::rules(), 3);
  const auto refusal = [&](const frame_request& x, owner_id owner = 1) {
    const auto placed = w.state.place(owner, x, w.now);
    const auto fetched = w.state.fetch(owner, x, w.now);
    REQUIRE_FALSE(placed);
    REQUIRE_FALSE(fetched);
    CHECK(placed.error().code == fetched.error().code);
    return placed.error().code;
  };
  std::vector<page_ref> nine;
  for (slot_number slot = 0; slot < 9; ++slot)
    nine.push_back(w.page(slot));
  CHECK(refusal(w.request(nine)) == errc::limit_exceeded);
  CHECK(refusal(w.request({w.page(0)}, duration::zero())) == errc::timeout);
  w.state.owner_died(7, w.now);
  CHECK(refusal(w.request({w.page(0)}), 7) == errc::expired);

  // Pinned, answered or not.
  nine.pop_back();
  const auto pin = w.reply(w.place(nine)).pin;
  CHECK(refusal(w.request({w.page(10), w.page(11), w.page(12), w.page(13), w.page(14)})) == errc::limit_exceeded);
  w.place({w.page(10), w.page(11), w.page(12), w.page(13)});
  CHECK(refusal(w.request({w.page(14)})) == errc::limit_exceeded);
  // Others have limits of their own, but for how many may wait.
  owner_id other = 2;
  for (const slot_number slot : {8U, 9U, 14U})
    w.place({w.page(slot)}, other++);
  CHECK(refusal(w.request({w.page(15)}), 9) == errc::limit_exceeded);
  w.fill(pin, codes(8, errc::cancelled));
  CHECK(w.state.place(1, w.request({w.page(0)}), w.now));
  w.flush();

  w.state.drain();
  CHECK(refusal(w.request({w.page(1)})) == errc::shutting_down);
}

TEST_CASE("io worker: memory is borrowed before pages have to leave", "[io_worker_state]") {
  worker w(worker::rules(), 2);
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  CHECK(w.memory.size() == 1);
  w.store({w.page(4)});
  CHECK(w.memory.size() == 2);
  CHECK(w.state.stats().demotions == 0);
  w.store({w.page(5), w.page(6), w.page(7), w.page(8)});
  CHECK(w.state.stats().demotions == 1);
  // Asked for again after a while, if there is need.
  w.extents_left = 1;
  w.store({w.page(9)});
  CHECK(w.memory.size() == 2);
  w.pass_time(std::chrono::seconds(2));
  CHECK(w.memory.size() == 2);
  w.store({w.page(10)});
  CHECK(w.memory.size() == 3);
}

TEST_CASE("io worker: who waits for memory is served in order, and told when the time is over", "[io_worker_state]") {
  worker w;
  const auto held = w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)}));
  const auto large = w.place({w.page(4), w.page(5), w.page(6)}, 2, 100 * ms);
  const auto small = w.place({w.page(7)}, 3);
  SECTION("the first takes what comes, though the second would need less") {
    w.fill(held.pin, {errc::cancelled, errc::ok, errc::ok, errc::ok});
    CHECK_FALSE(w.answered(large));
    CHECK_FALSE(w.answered(small));
    w.write_all();
    CHECK(w.codes_of(w.reply(large)) == codes{errc::ok, errc::ok, errc::ok});
    CHECK(w.codes_of(w.reply(small)) == codes{errc::ok});
  }
  SECTION("what it has got by then it keeps, and the next one's turn comes") {
    w.pass_time(99 * ms);
    w.fill(held.pin, {errc::cancelled, errc::ok, errc::ok, errc::ok});
    CHECK_FALSE(w.answered(large));
    w.pass_time(1 * ms);
    const auto got = w.reply(large);
    CHECK(w.codes_of(got) == codes{errc::ok, errc::full, errc::full});
    CHECK_FALSE(w.answered(small));
    w.fill(got.pin, {errc::cancelled, errc::ok, errc::ok}, 2);
    CHECK(w.codes_of(w.reply(small)) == codes{errc::ok});
  }
  SECTION("a fetch of what is in memory does not wait") {
    w.fill(held.pin, {errc::ok, errc::ok, errc::ok, errc::ok});
    CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::ok});
    CHECK_FALSE(w.answered(large));
  }
  SECTION("no wait is longer than the node allows") {
    const auto patient = w.place({w.page(8)}, 4, std::chrono::hours(1));
    w.pass_time(std::chrono::seconds(10));
    CHECK(w.codes_of(w.reply(patient)) == codes{errc::full});
  }
}

TEST_CASE("io worker: a fence refuses the old generation for good", "[io_worker_state]") {
  worker w;
  const auto id = w.fence({{3, 4}, {99, 1}});
  CHECK(w.is_fenced(id));
  CHECK(w.codes_of(w.reply(w.place({w.page(3, 4), w.page(3, 2)}))) == codes{errc::stale, errc::stale});
  CHECK(w.codes_of(w.reply(w.fetch({w.page(3, 4)}))) == codes{errc::stale});
  w.fence({{3, 2}}); // one that is late takes nothing back
  CHECK(w.codes_of(w.reply(w.place({w.page(3, 3), w.page(3, 5)}))) == codes{errc::stale, errc::ok});
  CHECK(w.state.stats().fenced == 4);
}

TEST_CASE("io worker: a fence waits for the slab, not for clients, whose frames stay theirs", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  SECTION("a writer that is late publishes nothing, and nobody else has its frame") {
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
  SECTION("a reader goes on reading what it has") {
    w.fill(placed.pin, {errc::ok});
    w.write_all();
    const auto fetched = w.reply(w.fetch({w.page(0)}));
    CHECK(w.is_fenced(w.fence({{0, 1}})));
    CHECK(w.state.stats().orphaned_frames == 1);
    CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::stale});
    w.unpin(fetched.pin);
    CHECK(w.state.stats().orphaned_frames == 0);
  }
  SECTION("a page that is being checked, or written, is let go of first") {
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
  SECTION("a page that is being read reaches nobody") {
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

TEST_CASE("io worker: a request that waits learns that its slot was fenced meanwhile", "[io_worker_state]") {
  worker w;
  const auto held = w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)}));
  const auto waiting = w.place({w.page(4), w.page(5)}, 2);
  w.fence({{4, 1}});
  w.fill(held.pin, codes(4, errc::cancelled));
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::stale, errc::ok});
}

TEST_CASE("io worker: frames of the dead are nobody's until they are known to be at rest", "[io_worker_state]") {
  worker w;
  w.store({w.page(0)});
  const auto placed = w.reply(w.place({w.page(1)}));
  const auto fetched = w.reply(w.fetch({w.page(0)}));
  const auto others = w.reply(w.place({w.page(2), w.page(3)}, 2));
  w.state.owner_died(1, w.now);
  w.flush();
  // Its reservation ends, too: the slot is fenced.
  CHECK(w.is_fenced(w.fence({{1, 1}})));
  const auto waiting = w.place({w.page(4), w.page(5)}, 2, std::chrono::seconds(9));
  w.pass_time(std::chrono::seconds(8));
  CHECK_FALSE(w.answered(waiting));
  CHECK(w.state.fetch(1, w.request({w.page(0)}), w.now).error().code == errc::expired);
  w.state.owner_at_rest(1, w.now);
  w.flush();
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok, errc::ok});
  CHECK(w.state.stats().pinned_frames == 4);
  CHECK(w.state.fill(1, {placed.pin, {}, patience}, w.now).error().code == errc::not_found);
  CHECK(w.state.unpin(1, fetched.pin, w.now).error().code == errc::not_found);
  CHECK(w.fill(others.pin, {errc::ok, errc::ok}, 2) == codes{errc::ok, errc::ok});
}

TEST_CASE("io worker: a client that dies while it waits is told of nothing, and holds nothing", "[io_worker_state]") {
  worker w;
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.store({w.page(4)});
  const auto reading = w.fetch({w.page(0)});
  const auto held = w.reply(w.place({w.page(5), w.page(6)}, 2));
  const auto half = w.place({w.page(7), w.page(8)});
  w.state.owner_died(1, w.now);
  w.flush();
  REQUIRE(w.frames.size() == 2);
  for (const auto& x : w.frames)
    CHECK(x.refused == errc::expired);
  CHECK(w.answered(reading));
  CHECK(w.answered(half));
  w.frames.clear();
  w.complete();
  CHECK(w.state.stats().pinned_frames == 2);
  CHECK(w.codes_of(w.reply(w.place({w.page(9), w.page(10)}, 2))) == codes{errc::ok, errc::ok});
  w.fill(held.pin, {errc::ok, errc::ok}, 2);
}

TEST_CASE("io worker: written through, a page is stored when it is in the slab", "[io_worker_state]") {
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
  SECTION("or not") {
    w.state.complete(std::array{io::completion{w.requests[0].tag, errc::ok, 0}}, w.now);
    w.flush();
    CHECK(w.filled(*id).empty());
    w.state.complete(std::array{io::completion{w.requests[1].tag, errc::no_space, 0}}, w.now);
    w.flush();
    CHECK(w.filled(*id) == codes{errc::ok, errc::no_space, errc::cancelled});
  }
  SECTION("and not if its slot was given back") {
    w.fence({{1, 1}});
    w.complete();
    CHECK(w.filled(*id) == codes{errc::ok, errc::stale, errc::cancelled});
  }
}

TEST_CASE("io worker: a page that waits for its turn to be written, and loses its slot, is answered",
          "[io_worker_state]") {
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

TEST_CASE("io worker: a page that could not be written is kept, and written later", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  w.fill(placed.pin, {errc::ok});
  w.pass_checks();
  w.complete(errc::no_space);
  CHECK(w.state.needs_ticks());
  CHECK_FALSE(w.state.at_rest());
  CHECK(w.state.stats().dirty_pages == 1);
  CHECK(w.state.stats().failed == 1);
  w.pass_time(999 * ms);
  CHECK(w.checks.empty());
  w.pass_time(1 * ms);
  CHECK(w.checks.size() == 1);
  w.write_all();
  CHECK(w.state.at_rest());
}

TEST_CASE("io worker: a page that a client has scribbled on is not written, and is gone", "[io_worker_state]") {
  worker w;
  const auto placed = w.reply(w.place({w.page(0)}));
  w.fill(placed.pin, {errc::ok});
  w.pass_checks(errc::corrupt);
  CHECK(w.requests.empty());
  REQUIRE(w.damaged.size() == 1);
  CHECK(w.damaged[0].first == w.page(0));
  CHECK(w.damaged[0].second == errc::corrupt);
  CHECK(w.state.stats().resident_pages == 0);
  CHECK(w.state.stats().damaged_pages == 1);
  CHECK(w.state.at_rest());
  // It is not in the slab either; what is read there is not the page, which a load sees.
  w.fetch({w.page(0)});
  CHECK(w.requests.size() == 1);
}

TEST_CASE("io worker: a slab that is damaged is read, not written", "[io_worker_state]") {
  worker w;
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  const auto placed = w.reply(w.place({w.page(4)}));
  w.state.slab_is_damaged();
  CHECK(w.fill(placed.pin, {errc::ok}) == codes{errc::slab_damaged});
  CHECK(w.codes_of(w.reply(w.place({w.page(5)}))) == codes{errc::slab_damaged});
  w.fetch({w.page(0)});
  CHECK(w.requests.size() == 1);
  w.complete();
  CHECK(w.state.at_rest());
}

TEST_CASE("io worker: before its end, all is written that was only in memory", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.write_eagerly = false;
  worker w(rules, 4);
  const auto placed = w.reply(w.place({w.page(0), w.page(1)}));
  const auto other = w.reply(w.place({w.page(2)}));
  w.fill(placed.pin, {errc::ok, errc::ok});
  CHECK(w.checks.empty());
  w.state.drain();
  w.flush();
  CHECK_FALSE(w.state.at_rest());
  CHECK(w.checks.size() == 2);
  CHECK(w.fill(other.pin, {errc::ok}) == codes{errc::ok});
  w.write_all();
  CHECK(w.state.at_rest());
  CHECK(w.state.stats().written_pages == 3);
}

TEST_CASE("io worker: a drain answers who waits for memory", "[io_worker_state]") {
  worker w;
  w.place({w.page(0), w.page(1), w.page(2), w.page(3)});
  const auto waiting = w.place({w.page(4)}, 2);
  w.state.drain();
  w.flush();
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::shutting_down});
}

TEST_CASE("io worker: where pages are written when memory runs short, some are ready before it has",
          "[io_worker_state]") {
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

TEST_CASE("io worker: in memory only, nothing is written, and what is not there is not there", "[io_worker_state]") {
  auto rules = worker::rules();
  rules.memory_only = true;
  worker w(rules);
  w.fill(w.reply(w.place({w.page(0), w.page(1), w.page(2), w.page(3)})).pin, codes(4, errc::ok));
  CHECK(w.checks.empty());
  CHECK(w.state.at_rest());
  const auto fetched = w.reply(w.fetch({w.page(3), w.page(4)}));
  CHECK(w.codes_of(fetched) == codes{errc::ok, errc::not_found});
  // Only a fence makes room.
  const auto waiting = w.place({w.page(5)});
  CHECK_FALSE(w.answered(waiting));
  CHECK(w.is_fenced(w.fence({{0, 1}})));
  CHECK(w.codes_of(w.reply(waiting)) == codes{errc::ok});
}

TEST_CASE("io worker: a completion or a verdict that belongs to nothing, or comes twice, changes nothing",
          "[io_worker_state]") {
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

TEST_CASE("io worker: so many pages are read and written at once", "[io_worker_state]") {
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

} // namespace io_worker_state_test
