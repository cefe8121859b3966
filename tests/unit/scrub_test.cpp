#include "actors/node/io_worker/scrub.hpp"
#include "tests/catch.hpp"
#include "tests/unit/io_worker_rules.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

namespace scrub_test {

using namespace troupe;
using namespace troupe::test::io_worker_rules;
using std::chrono::milliseconds;

namespace {

/// A scrub rate of ten pages per second.
scrub_options ten_a_second() {
  return {.pace = std::make_shared<scrub_pace>(10 * slot_bytes), .slot_bytes = slot_bytes};
}

page_ref page(slot_number slot, generation_number generation = 1) {
  return worker::page(slot, generation);
}

/// A worker that looks at its slab, ten pages a second.
struct scrubbing_worker : worker {
  static io_worker_options scrub_rules() {
    auto out = rules();
    out.scrub = ten_a_second();
    return out;
  }

  explicit scrubbing_worker(std::size_t extents = 1, const io_worker_options& options = scrub_rules())
      : worker(options, extents) {
    state.begin_scrub(buffer, 99, 1, now);
  }

  std::vector<std::byte> buffer = std::vector<std::byte>(slot_bytes);

  void list(std::vector<page_ref> pages) {
    REQUIRE(state.take_scrub_wish(now));
    state.scrub_listed(std::move(pages), 7, false, now);
    go_on();
  }
  void go_on() {
    state.scrub_some(now);
    flush();
  }
  /// The read of the scrub in progress.
  std::optional<io::page_request> read() const {
    const auto found = std::ranges::find(requests, 99, &io::page_request::buffer);
    return found == requests.end() ? std::nullopt : std::optional(*found);
  }
  void end_read(errc status = errc::ok) {
    const auto x = read();
    REQUIRE(x);
    std::erase_if(requests, [&](const auto& r) { return r.tag == x->tag; });
    state.complete(std::array{io::completion{x->tag, status, 0}}, now);
    flush();
  }
  void judge(errc verdict) {
    REQUIRE(state.take_scrub_check());
    state.scrub_verdict(verdict, now);
    flush();
  }
};

/// Slabs of one node, each with the bytes that were read so far. A read takes no time.
struct scrubbed_slabs {
  struct slab {
    slab(const std::shared_ptr<scrub_pace>& pace, std::uint64_t page_bytes)
        : bytes(page_bytes), rules({.pace = pace, .slot_bytes = page_bytes}) {}
    std::uint64_t bytes;
    scrub rules;
    std::uint64_t read = 0;
    /// The number of its pages, which are all valid.
    slot_number pages = 8;
  };

  explicit scrubbed_slabs(std::uint64_t bytes_per_second) : pace(std::make_shared<scrub_pace>(bytes_per_second)) {}

  slab& add(std::uint64_t page_bytes) {
    auto& out = *slabs.emplace_back(std::make_unique<slab>(pace, page_bytes));
    out.rules.begin(1, now);
    return out;
  }
  void run(
      duration how_long, const std::function<void()>& at_each_step = [] {}) {
    for (const auto end = now + how_long; now < end; now += milliseconds(1)) {
      for (auto& x : slabs)
        step(*x);
      at_each_step();
    }
  }
  std::uint64_t read() const {
    std::uint64_t out = 0;
    for (const auto& x : slabs)
      out += x->read;
    return out;
  }

  std::shared_ptr<scrub_pace> pace;
  std::vector<std::unique_ptr<slab>> slabs;
  timestamp now = t0;

private:
  void step(slab& x) {
    if (x.rules.take_wish(now)) {
      std::vector<page_ref> pages;
      for (slot_number i = 0; i < x.pages; ++i)
        pages.push_back(page(i));
      x.rules.listed(std::move(pages), 0, false, now);
    }
    if (x.rules.take_page(false, now)) {
      x.read += x.bytes;
      x.rules.ended(now);
    }
  }
};

} // namespace

TEST_CASE("scrub: slabs share the scrub rate of their node equally, for any page size", "[io_worker]") {
  constexpr std::uint64_t rate = 100'000;
  scrubbed_slabs node(rate);
  auto& small = node.add(1'000);
  auto& large = node.add(40'000);
  small.pages = large.pages = 100'000;
  node.run(std::chrono::seconds(30));
  CHECK(node.read() <= 30 * rate + small.bytes + large.bytes);
  CHECK(node.read() >= 30 * rate * 9 / 10);
  CHECK(small.read >= 30 * rate * 4 / 10);
  CHECK(large.read >= 30 * rate * 4 / 10);
  SECTION("an ended scrub leaves its share to the other") {
    const auto before = large.read;
    small.rules.end();
    node.run(std::chrono::seconds(10));
    CHECK(large.read - before >= 9 * rate);
    CHECK(large.read - before <= 10 * rate + large.bytes);
  }
  SECTION("a removed slab leaves its share to the other") {
    const auto before = large.read;
    node.slabs.erase(node.slabs.begin());
    node.run(std::chrono::seconds(10));
    CHECK(large.read - before >= 9 * rate);
  }
}

TEST_CASE("scrub: slabs of one page that are added and removed all the time stay within the scrub rate of their node",
          "[io_worker]") {
  constexpr std::uint64_t rate = 50'000;
  scrubbed_slabs node(rate);
  // Each of them by itself would read its page at the beginning of a pass, and the pause between two of these is 10 s.
  for (int i = 0; i < 200; ++i)
    node.add(10'000).pages = 1;
  node.run(std::chrono::seconds(60), [&] {
    const auto seconds = std::chrono::duration<double>(node.now - t0).count();
    if (static_cast<double>(node.read()) > seconds * rate + 10'001)
      FAIL(node.read() << " bytes in " << seconds << " s");
  });
  CHECK(node.read() >= 60 * rate * 9 / 10);
  for (const auto& x : node.slabs)
    CHECK(x->read > 0);
}

TEST_CASE("scrub: a disabled scrub requests nothing", "[io_worker]") {
  scrub x({.pace = nullptr, .slot_bytes = slot_bytes});
  x.begin(4, t0);
  CHECK_FALSE(x.on());
  CHECK_FALSE(x.take_wish(t0));
  CHECK_FALSE(x.next(false));
}

TEST_CASE("scrub: a scrub visits all parts of all shards in slab order and restarts after a pause", "[io_worker]") {
  scrub x(ten_a_second());
  x.begin(2, t0);
  auto now = t0;
  std::vector<slot_number> seen;
  const auto read_all = [&] {
    while (const auto next = x.take_page(false, now)) {
      seen.push_back(next->where.slot);
      x.ended(now);
      now += milliseconds(100);
    }
  };
  auto wish = x.take_wish(now);
  REQUIRE(wish);
  CHECK(wish->shard == 0);
  CHECK(wish->from == 0);
  CHECK_FALSE(x.take_wish(now)); // it is in progress
  CHECK_FALSE(x.next(false));
  x.listed({page(5), page(1)}, 30, true, now);
  read_all();
  wish = x.take_wish(now);
  REQUIRE(wish);
  CHECK(wish->shard == 0);
  CHECK(wish->from == 30);
  x.listed({}, 60, false, now);
  wish = x.take_wish(now);
  REQUIRE(wish);
  CHECK(wish->shard == 1);
  CHECK(wish->from == 0);
  x.listed({page(3)}, 9, false, now);
  CHECK(x.passes() == 0);
  read_all();
  CHECK(seen == std::vector<slot_number>{1, 5, 3});
  CHECK(x.passes() == 1);
  CHECK_FALSE(x.take_wish(now));
  REQUIRE(x.next(false));
  now = *x.next(false);
  wish = x.take_wish(now);
  REQUIRE(wish);
  CHECK(wish->shard == 0);
  CHECK(wish->from == 0);
}

TEST_CASE("scrub: a scrub keeps its rate and does not catch up on missed time", "[io_worker]") {
  scrub x(ten_a_second());
  x.begin(1, t0);
  REQUIRE(x.take_wish(t0));
  x.listed({page(1), page(2), page(3), page(4)}, 0, false, t0);
  REQUIRE(x.take_page(false, t0));
  CHECK_FALSE(x.take_page(false, t0 + std::chrono::seconds(5))); // one at a time
  x.ended(t0 + milliseconds(30));
  CHECK(x.next(false) == t0 + milliseconds(130));
  CHECK_FALSE(x.take_page(false, t0 + milliseconds(129)));
  const auto late = t0 + std::chrono::minutes(5);
  REQUIRE(x.take_page(false, late));
  x.ended(late);
  CHECK_FALSE(x.take_page(false, late + milliseconds(99)));
  REQUIRE(x.take_page(false, late + milliseconds(100)));
  x.skipped(late + milliseconds(100)); // costs nothing
  CHECK(x.take_page(false, late + milliseconds(100)));
}

TEST_CASE("scrub: a scrub yields to loads, but not for ever", "[io_worker]") {
  scrub x(ten_a_second());
  x.begin(1, t0);
  REQUIRE(x.take_wish(t0));
  x.listed({page(1), page(2)}, 0, false, t0);
  CHECK_FALSE(x.take_page(true, t0));
  CHECK(x.next(true) == t0 + std::chrono::seconds(1));
  CHECK(x.take_page(true, t0 + std::chrono::seconds(1)));
}

TEST_CASE("scrub: a shard that does not answer is asked again", "[io_worker]") {
  scrub x(ten_a_second());
  x.begin(1, t0);
  REQUIRE(x.take_wish(t0));
  x.not_listed(t0);
  CHECK_FALSE(x.take_wish(t0));
  CHECK(x.take_wish(t0 + std::chrono::seconds(10)));
}

TEST_CASE("scrub: a corrupt page is reported once", "[io_worker]") {
  scrubbing_worker w;
  w.store({page(3)});
  w.store({page(4)});
  w.list({page(4), page(3)});
  REQUIRE(w.read());
  CHECK(w.read()->where == slot_ref{3, 1});
  CHECK(w.read()->data == w.buffer.data());
  w.end_read();
  w.judge(errc::corrupt);
  CHECK(w.damaged == std::vector{damaged_page{page(3), errc::corrupt, page_tier::disk}});
  CHECK_FALSE(w.read());
  w.pass_time(milliseconds(100));
  w.go_on();
  w.end_read();
  w.judge(errc::ok);
  CHECK(w.damaged.size() == 1);
  const auto stats = w.state.stats();
  CHECK(stats.scrubbed_pages == 2);
  CHECK(stats.scrub_unsound_pages == 1);
  CHECK(stats.scrub_passes == 1);
}

TEST_CASE("scrub: a disk error during a scrub counts like one during a load", "[io_worker]") {
  const auto [said, counts] = GENERATE(table<errc, bool>(
      {{errc::io_error, true}, {errc::slab_damaged, true}, {errc::timeout, false}, {errc::shutting_down, false}}));
  scrubbing_worker w;
  w.list({page(3)});
  w.end_read(said);
  CHECK_FALSE(w.state.take_scrub_check());
  CHECK(w.damaged.size() == (counts ? 1 : 0));
}

TEST_CASE("scrub: a page whose slot was reused during the read is not reported, and neither is the new one",
          "[io_worker]") {
  scrubbing_worker w;
  w.list({page(3)});
  const bool judged = GENERATE(false, true);
  if (judged)
    w.end_read();
  // A fence does not wait for a read by the scrub.
  CHECK(w.is_fenced(w.fence({{3, 1}})));
  w.store({page(3, 2)}); // with that, all reads and writes have ended
  w.judge(errc::identity_mismatch);
  CHECK(w.damaged.empty());
  CHECK(w.state.stats().scrubbed_pages == 0);
  // The one that is there now has its turn, too.
  w.pass_time(std::chrono::minutes(2));
  w.list({page(3, 2)});
  w.end_read();
  w.judge(errc::corrupt);
  CHECK(w.damaged == std::vector{damaged_page{page(3, 2), errc::corrupt, page_tier::disk}});
}

TEST_CASE("scrub: a page that is not in the slab yet or any more is not read", "[io_worker]") {
  scrubbing_worker w;
  SECTION("it is being written") {
    const auto pin = w.reply(w.place({page(3)})).pin;
    w.list({page(3)});
    CHECK_FALSE(w.read());
    REQUIRE(w.fill(pin, {errc::ok}) == codes{errc::ok});
    w.pass_time(std::chrono::minutes(2));
    w.list({page(3)});
    CHECK_FALSE(w.read());
    w.write_all();
    w.pass_time(std::chrono::minutes(2));
    w.list({page(3)});
    CHECK(w.read());
  }
  SECTION("its slot is fenced, or there is none") {
    w.fence({{3, 1}});
    w.list({page(3), page(99)});
    CHECK_FALSE(w.read());
  }
  SECTION("another generation is in memory") {
    w.store({page(3, 2)});
    w.list({page(3, 1)});
    CHECK_FALSE(w.read());
  }
  CHECK(w.damaged.empty());
}

TEST_CASE("scrub: nothing is read while clients wait for the disk, the node drains or the slab is damaged",
          "[io_worker]") {
  scrubbing_worker w;
  SECTION("clients wait") {
    w.fetch({page(8)});
    w.list({page(3)});
    CHECK_FALSE(w.read());
    w.complete();
    w.go_on();
    CHECK(w.read());
  }
  SECTION("the node drains") {
    REQUIRE(w.state.take_scrub_wish(w.now));
    w.state.drain(w.now);
    w.state.scrub_listed({page(3)}, 0, false, w.now);
    w.go_on();
    CHECK_FALSE(w.read());
    CHECK(w.state.quiesced());
    CHECK_FALSE(w.state.next_scrub());
  }
  SECTION("the slab is damaged") {
    w.state.slab_is_damaged();
    CHECK_FALSE(w.state.take_scrub_wish(w.now));
    CHECK_FALSE(w.state.next_scrub());
  }
}

} // namespace scrub_test
