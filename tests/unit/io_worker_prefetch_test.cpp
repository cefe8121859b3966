#include "actors/node/io_worker/prefetch_queue.hpp"
#include "tests/unit/io_worker_rules.hpp"

/// Pages that are read because a lookup has found them.

namespace io_worker_prefetch_test {

using namespace troupe;
using namespace troupe::test::io_worker_rules;

namespace {

io_worker_options ahead(std::uint64_t pages = 16, std::uint32_t reads = 32) {
  auto out = worker::rules();
  out.prefetch_pages_max = pages;
  out.prefetch_reads_max = reads;
  return out;
}

/// A worker with pages 0 to 7 in the slab only and 8 to 15 in memory too, which is full.
struct full_worker : worker {
  explicit full_worker(const io_worker_options& rules = ahead()) : worker(rules, 2) {
    for (slot_number first = 0; first < 16; first += 4)
      store({page(first), page(first + 1), page(first + 2), page(first + 3)});
  }

  std::vector<slot_number> reads() const {
    std::vector<slot_number> out;
    for (const auto& x : requests)
      if (x.op == io::operation::read)
        out.push_back(x.where.slot);
    return out;
  }
};

using slots = std::vector<slot_number>;

} // namespace

TEST_CASE("prefetch: pages that a lookup found are read and in memory when they are fetched", "[io_worker_state]") {
  full_worker w;
  w.look_up({w.page(0), w.page(1), w.page(9)});
  // A quarter of the frames.
  CHECK(w.reads() == slots{0, 1});
  w.complete();
  CHECK(w.state.stats().prefetched_pages == 2);
  CHECK(w.state.stats().prefetch_hits == 0);
  CHECK(w.state.stats().pinned_frames == 0);
  const auto got = w.reply(w.fetch({w.page(0), w.page(1)}));
  CHECK(w.codes_of(got) == codes{errc::ok, errc::ok});
  CHECK(got.frames[0].promoted == 0);
  CHECK(w.requests.empty());
  CHECK(w.state.stats().prefetch_hits == 2);
  CHECK(w.state.stats().memory_hits == 2);
  // They were on disk when the lookup found them.
  CHECK(w.state.stats().memory_loads == 0);
  w.unpin(got.pin);
  w.unpin(w.reply(w.fetch({w.page(9), w.page(0)})).pin);
  CHECK(w.state.stats().memory_loads == 2);
  CHECK(w.state.stats().loaded_pages == 4);
}

TEST_CASE("prefetch: a fetch of a page that is being read waits for that read", "[io_worker_state]") {
  full_worker w;
  w.look_up({w.page(0)});
  REQUIRE(w.reads() == slots{0});
  const auto id = w.fetch({w.page(0)});
  CHECK(w.reads() == slots{0});
  CHECK_FALSE(w.answered(id));
  SECTION("it gets the page") {
    w.complete();
    const auto got = w.reply(id);
    CHECK(w.codes_of(got) == codes{errc::ok});
    CHECK(w.state.stats().prefetch_hits == 1);
    w.unpin(got.pin);
  }
  SECTION("it gets the error") {
    w.complete(errc::io_error);
    CHECK(w.codes_of(w.reply(id)) == codes{errc::io_error});
    CHECK(w.state.stats().prefetched_pages == 0);
  }
  SECTION("even after the lease has ended") {
    w.end_lookup();
    w.complete();
    CHECK(w.codes_of(w.reply(id)) == codes{errc::ok});
  }
  CHECK(w.state.stats().in_flight == 0);
}

TEST_CASE("prefetch: unfetched pages are bounded, and reading continues when they are fetched or no longer needed",
          "[io_worker_state]") {
  full_worker w;
  w.look_up({w.page(0), w.page(1), w.page(2), w.page(3)});
  CHECK(w.reads() == slots{0, 1});
  w.complete();
  CHECK(w.requests.empty());
  SECTION("fetched") {
    w.unpin(w.reply(w.fetch({w.page(1)})).pin);
    CHECK(w.reads() == slots{2});
    // A fetched page no longer counts.
    w.unpin(w.reply(w.fetch({w.page(1)})).pin);
    CHECK(w.reads() == slots{2});
    CHECK(w.state.stats().prefetch_hits == 1);
  }
  SECTION("the lease has ended, and another one comes") {
    w.look_up({w.page(4)}, 2);
    CHECK(w.requests.empty());
    w.end_lookup();
    CHECK(w.reads() == slots{4});
    CHECK(w.state.stats().prefetches_cancelled == 2);
    // Those that were read are in memory as others are.
    CHECK(w.codes_of(w.reply(w.fetch({w.page(0)}))) == codes{errc::ok});
    CHECK(w.state.stats().prefetch_hits == 0);
  }
  SECTION("the client has died") {
    w.state.owner_died(1, w.now);
    w.flush();
    CHECK(w.state.stats().prefetches_cancelled == 2);
    w.look_up({w.page(5)}, 3, 1);
    CHECK(w.requests.empty());
    w.look_up({w.page(6)}, 3, 2);
    CHECK(w.reads() == slots{6});
  }
  SECTION("the slot is fenced") {
    w.fence({{0, 1}});
    CHECK(w.reads() == slots{2});
  }
}

TEST_CASE("prefetch: a trimmed lease cancels the pages after its new end", "[io_worker_state]") {
  full_worker w(ahead(1));
  w.look_up({w.page(0), w.page(1), w.page(2)}, 1, 1, 4);
  CHECK(w.reads() == slots{0});
  w.end_lookup(1, 1, 6);
  CHECK(w.state.stats().prefetches_cancelled == 1);
  w.complete();
  w.unpin(w.reply(w.fetch({w.page(0)})).pin);
  CHECK(w.reads() == slots{1});
  w.complete();
  w.unpin(w.reply(w.fetch({w.page(1)})).pin);
  CHECK(w.requests.empty());
}

TEST_CASE("prefetch: leases of one ticket in several shards are distinguished", "[io_worker_state]") {
  full_worker w(ahead(1));
  w.look_up({w.page(0), w.page(1)});
  prefetch_request other{1, {1, 1}, 0, {}};
  other.pages.items = {w.page(2), w.page(3)};
  w.state.prefetch(other, w.now);
  w.flush();
  w.end_lookup();
  CHECK(w.state.stats().prefetches_cancelled == 1);
  CHECK(w.reads() == slots{0, 2});
}

TEST_CASE("prefetch: fetches take precedence", "[io_worker_state]") {
  full_worker w(ahead(16, 1));
  w.look_up({w.page(0), w.page(1)});
  CHECK(w.reads() == slots{0});
  // A fetch of a page in the prefetch queue reads it at once.
  const auto id = w.fetch({w.page(1)});
  CHECK(w.reads() == slots{0, 1});
  w.complete();
  CHECK(w.codes_of(w.reply(id)) == codes{errc::ok});
  CHECK(w.requests.empty());
  CHECK(w.state.stats().prefetched_pages == 1);
  CHECK(w.state.stats().prefetch_hits == 0);
}

TEST_CASE("prefetch: nothing is read while a request waits for a frame", "[io_worker_state]") {
  full_worker w;
  const auto first = w.reply(w.fetch({w.page(8), w.page(9), w.page(10), w.page(11)}));
  const auto second = w.reply(w.fetch({w.page(12), w.page(13), w.page(14), w.page(15)}, 2));
  const auto waits = w.place({w.page(0, 2)}, 3);
  CHECK_FALSE(w.answered(waits));
  w.look_up({w.page(1)});
  CHECK(w.requests.empty());
  w.unpin(first.pin);
  CHECK(w.answered(waits));
  CHECK(w.reads() == slots{1});
  w.unpin(second.pin, 2);
}

TEST_CASE("prefetch: nothing is read where all frames are pinned", "[io_worker_state]") {
  full_worker w;
  const auto first = w.reply(w.fetch({w.page(8), w.page(9), w.page(10), w.page(11)}));
  const auto second = w.reply(w.fetch({w.page(12), w.page(13), w.page(14), w.page(15)}, 2));
  w.look_up({w.page(1)});
  CHECK(w.requests.empty());
  w.unpin(second.pin, 2);
  CHECK(w.reads() == slots{1});
  w.unpin(first.pin);
}

TEST_CASE("prefetch: pages of the same lookup in memory are not evicted for it", "[io_worker_state]") {
  full_worker w;
  // The coldest of those in memory.
  w.look_up({w.page(11), w.page(10), w.page(9), w.page(8), w.page(0), w.page(1)});
  w.complete();
  const auto got = w.reply(w.fetch({w.page(8), w.page(9), w.page(10), w.page(11)}));
  CHECK(w.codes_of(got) == codes(4, errc::ok));
  CHECK(w.requests.empty());
}

TEST_CASE("prefetch: an unused extent is taken first", "[io_worker_state]") {
  worker w(ahead(), 1);
  w.store({w.page(0), w.page(1), w.page(2), w.page(3)});
  w.store({w.page(4), w.page(5)});
  w.extents_left = 1;
  w.pass_time(std::chrono::seconds(2));
  w.look_up({w.page(0)});
  CHECK(w.state.frames().size() == 8);
  CHECK(w.requests.size() == 1);
  CHECK(w.state.stats().demotions == 2);
}

TEST_CASE("prefetch: the slot of a page that is being read is fenced after the read", "[io_worker_state]") {
  full_worker w;
  w.look_up({w.page(0)});
  const auto fence = w.fence({{0, 1}});
  CHECK_FALSE(w.is_fenced(fence));
  w.end_lookup();
  CHECK_FALSE(w.is_fenced(fence));
  w.complete();
  CHECK(w.is_fenced(fence));
  CHECK(w.state.stats().resident_pages == 7);
  CHECK(w.state.frames().count(frame_state::free) == 1);
}

TEST_CASE("prefetch: a failed read is not repeated, and its frame is freed", "[io_worker_state]") {
  full_worker w;
  w.look_up({w.page(0)});
  w.complete(errc::io_error);
  CHECK(w.requests.empty());
  CHECK(w.state.frames().count(frame_state::free) == 1);
  // A fetch tries again.
  const auto id = w.fetch({w.page(0)});
  w.complete();
  CHECK(w.codes_of(w.reply(id)) == codes{errc::ok});
}

TEST_CASE("prefetch: no read starts while the node drains, the slab is damaged, or prefetch is off",
          "[io_worker_state]") {
  SECTION("drains") {
    full_worker w(ahead(1));
    w.look_up({w.page(0), w.page(1)});
    w.state.drain(w.now);
    w.flush();
    CHECK(w.state.stats().prefetches_cancelled == 1);
    w.complete();
    CHECK(w.state.quiesced());
    w.look_up({w.page(2)}, 2);
    CHECK(w.requests.empty());
  }
  SECTION("damaged") {
    full_worker w;
    w.state.slab_is_damaged();
    w.look_up({w.page(0)});
    CHECK(w.requests.empty());
  }
  SECTION("off") {
    full_worker w(ahead(0));
    w.look_up({w.page(0)});
    CHECK(w.requests.empty());
    CHECK(w.state.stats().prefetches_cancelled == 0);
  }
}

TEST_CASE("prefetch: the queue is bounded", "[io_worker_state]") {
  auto rules = ahead(1);
  rules.prefetch_waiting_max = 3;
  full_worker w(rules);
  w.look_up({w.page(0), w.page(1), w.page(2), w.page(3), w.page(4)});
  CHECK(w.state.stats().prefetches_cancelled == 2);
}

TEST_CASE("prefetch: invalid pages are not read", "[io_worker_state]") {
  full_worker w;
  w.look_up({w.page(99), w.page(0, 0), {key_digest{1, 1}, {0xffffffff, 1}}, w.page(9)});
  CHECK(w.requests.empty());
  // The generation is unknown in memory, where the slot has another one.
  w.look_up({w.page(9, 7)}, 2);
  CHECK(w.requests.empty());
}

TEST_CASE("prefetch queue: leases are served in order of arrival, and end as a whole or from their end",
          "[io_worker_state]") {
  prefetch_queue q(6);
  const auto page = [](slot_number slot) { return worker::page(slot); };
  const lease_of_shard a{0, {1, 1}};
  const lease_of_shard b{0, {1, 2}};
  const lease_of_shard c{1, {2, 1}};
  CHECK(q.add(a, 0, std::vector{page(0), page(1)}) == 0);
  CHECK(q.add(b, 5, std::vector{page(2), page(3)}) == 0);
  CHECK(q.add(a, 2, std::vector{page(4)}) == 0);
  CHECK(q.add(c, 0, std::vector{page(5), page(6)}) == 1);
  CHECK(q.waiting() == 6);
  CHECK(q.front() == page(0));
  q.begin(10);
  CHECK(q.front() == page(1));
  q.skip();
  CHECK(q.front() == page(4));
  q.begin(11);
  CHECK(q.front() == page(2));
  CHECK(q.unfetched() == 2);
  CHECK(q.check() == "");
  CHECK(q.end(b, 6) == 1);
  CHECK(q.end(b, 6) == 0);
  CHECK(q.end(a, 1) == 0);
  CHECK_FALSE(q.fetched(11));
  CHECK(q.fetched(10));
  CHECK_FALSE(q.fetched(10));
  CHECK(q.unfetched() == 0);
  CHECK(q.check() == "");
  CHECK(q.end_owner(2) == 1);
  CHECK(q.front() == page(2));
  q.begin(12);
  CHECK(q.end(lease_of_shard{9, {9, 9}}, 0) == 0);
  q.lost(12);
  CHECK(q.waiting() == 0);
  CHECK(q.unfetched() == 0);
  CHECK(q.add(b, 0, std::vector{page(1)}) == 0);
  CHECK(q.end_all() == 1);
  CHECK(q.check() == "");
}

} // namespace io_worker_prefetch_test
