#include "tests/unit/transfer_loader.hpp"

#include <algorithm>
#include <set>

namespace transfer_load_state_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

} // namespace

TEST_CASE("load: locate with a lease, fetch, scatter, unpin, release", "[load_state]") {
  loader s;
  const auto work = test_task(3);
  const auto id = s.state.start(work, t0);
  REQUIRE(id);
  const auto locate = s.one<load_locate>();
  CHECK(locate.request.ns == test_namespace);
  CHECK(locate.request.rank == 3);
  CHECK(locate.request.lease.owner == 77);
  CHECK(locate.request.lease_for >= work.deadline);
  CHECK(locate.request.lease_for <= std::chrono::seconds(60));
  CHECK(locate.request.keys == work.keys);
  s.located(locate, t0 + 3 * ms);

  const auto fetch = s.one<load_fetch>();
  CHECK(fetch.request.patience == work.deadline - 3 * ms);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(fetch.request.pages[i] == page_ref{work.keys[i], {i, 7}});
  CHECK(s.state.window_left() == 5);
  auto frames = s.worker.give(3);
  frames.frames[1].promoted = 1;
  s.state.on_fetch(fetch.call, frames, t0 + 8 * ms);

  const auto scatter = s.one<load_scatter>();
  CHECK(scatter.order.owner == 77);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(scatter.order.items[i] == copy_item{work.keys[i], {i, 7}, frames.frames[i].offset, work.blocks[i]});
  CHECK(s.take<task_finished>().empty());
  CHECK(s.take<load_release>().empty());
  CHECK(s.end_pins() == 0);
  CHECK(s.state.window_left() == 5);
  s.scattered(scatter, t0 + 10 * ms);
  // The pin ends before the lease does.
  const auto effects = s.state.take_outbox();
  REQUIRE(effects.size() == 3);
  CHECK(std::get<load_unpin>(effects[0]).pin == frames.pin);
  CHECK(s.state.window_left() == 8);

  const auto done = std::get<task_finished>(effects[2]);
  CHECK(done.task == *id);
  CHECK(results_of(done.result) == std::vector(3, errc::ok));
  CHECK(done.result.bytes == 3 * test_page_bytes);
  CHECK(done.result.from_disk == 1);
  CHECK(done.result.timing.registry == 3 * ms);
  CHECK(done.result.timing.io == 5 * ms);
  CHECK(done.result.timing.copy == 2 * ms);
  CHECK(done.result.timing.move == 2 * ms);
  const auto release = std::get<load_release>(effects[1]);
  CHECK(release.request.lease == locate.request.lease);
  CHECK(release.request.keep == 0);
  s.worker.end(frames.pin);
  s.released(release);
  s.check_quiesced(8);
}

TEST_CASE("load: a key without a page is a miss, and the rest is loaded", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(3), t0));
  const auto locate = s.one<load_locate>();
  locate_reply reply{locations(locate.request.keys)};
  reply.locations[1] = {{}, static_cast<std::uint32_t>(errc::not_found)};
  s.state.on_locate(locate.call, reply, t0);
  s.fetched(s.one<load_fetch>());
  s.scattered(s.one<load_scatter>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::not_found, errc::ok});
  CHECK(s.take<load_invalidate>().empty());
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load: nothing found ends at once, and the lease is still released", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(2), t0));
  const auto locate = s.one<load_locate>();
  s.state.on_locate(locate.call, locate_reply{std::vector<location>(2, {{}, 1})}, t0);
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::not_found));
  CHECK(s.one<load_release>().request.lease == locate.request.lease);
}

TEST_CASE("load: a task without blocks is answered at once and holds nothing", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(0), t0));
  CHECK(s.one<task_finished>().result.results.empty());
  s.check_quiesced(8);
}

TEST_CASE("load: each shard that was asked gets one release after the last unpin", "[load_state]") {
  constexpr std::uint32_t shards = 4;
  loader s{test_binding(64, shards), test_options(4)};
  REQUIRE(s.state.start(test_task(40), t0));
  const auto locates = s.take<load_locate>();
  REQUIRE(locates.size() == shards);
  for (const auto& x : locates) {
    CHECK(x.request.lease == locates[0].request.lease);
    for (const auto& k : x.request.keys)
      CHECK(shard_of(k, shards) == x.shard);
    s.located(x);
  }
  auto fetches = s.take<load_fetch>();
  for (auto& x : fetches) {
    CHECK(x.request.pages.size() <= 4);
    CHECK(s.take<load_release>().empty());
    s.fetched(x);
    CHECK(s.take<load_release>().empty());
    for (const auto& y : s.take<load_scatter>())
      s.scattered(y);
  }
  const auto releases = s.take<load_release>();
  std::multiset<std::uint32_t> released;
  for (const auto& x : releases) {
    released.insert(x.shard);
    s.released(x);
  }
  CHECK(released == std::multiset<std::uint32_t>{0, 1, 2, 3});
  CHECK(s.one<task_finished>().result.bytes == 40 * test_page_bytes);
  s.check_quiesced(64);
}

TEST_CASE("load: an unreachable page is not unpublished", "[load_state]") {
  const auto code = GENERATE(errc::timeout, errc::cancelled, errc::stale, errc::expired, errc::shutting_down,
                             errc::unreachable, errc::internal, errc::out_of_range, errc::invalid_argument);
  loader s;
  REQUIRE(s.state.start(test_task(2), t0));
  s.located(s.one<load_locate>());
  SECTION("the whole fetch") {
    s.state.on_fetch(s.one<load_fetch>().call, fail(code, "x"), t0);
  }
  SECTION("each fetch") {
    s.fetched(s.one<load_fetch>(), t0, std::vector(2, code));
  }
  SECTION("the whole scatter") {
    s.fetched(s.one<load_fetch>());
    s.state.on_scatter(s.one<load_scatter>().call, fail(code, "x"), t0);
  }
  SECTION("each scatter") {
    s.fetched(s.one<load_fetch>());
    s.state.on_scatter(s.one<load_scatter>().call, copy_reply{same_codes(2, code), {}}, t0);
  }
  CHECK(s.take<load_invalidate>().empty());
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, code));
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load: a request that the node has no room for is repeated when there may be some", "[load_state]") {
  loader s(test_binding(8), test_options(2));
  REQUIRE(s.state.start(test_task(6), t0));
  s.located(s.one<load_locate>());
  const auto no_room = [&](const load_fetch& x) {
    s.state.on_fetch(x.call, fail(errc::limit_exceeded, "4096 pages are under way"), t0);
  };
  const auto fetches = s.take<load_fetch>();
  REQUIRE(fetches.size() == 3);
  SECTION("other requests of this coordinator end") {
    no_room(fetches[1]);
    no_room(fetches[2]);
    CHECK(s.take<load_fetch>().empty()); // asking at once would be asking in vain
    CHECK(s.state.window_left() == 6);
    s.fetched(fetches[0]);
    // Room for the one that has ended, which is being scattered, and one more.
    const auto again = s.one<load_fetch>();
    CHECK(again.request.pages[0].where == slot_ref{2, 7});
    CHECK(again.request.pages[1].where == slot_ref{3, 7});
    s.scattered(s.one<load_scatter>());
    CHECK(s.take<load_fetch>().size() == 1);
    s.fetched(again);
    s.scattered(s.one<load_scatter>());
    CHECK(s.take<load_fetch>().empty());
  }
  SECTION("the timer ticks") {
    for (const auto& x : fetches)
      no_room(x);
    CHECK(s.take<load_fetch>().empty());
    CHECK(s.state.window_left() == 8);
    for (int round = 0; round < 3; ++round) {
      s.state.on_tick(t0 + ms);
      const auto probe = s.one<load_fetch>();
      CHECK(probe.request.pages[0].where == slot_ref{0, 7});
      no_room(probe);
      CHECK(s.take<load_fetch>().empty());
    }
    s.state.on_tick(t0 + ms);
    for (std::size_t done = 0; done < 3; ++done) {
      const auto taken = s.take<load_fetch>();
      for (const auto& x : taken)
        s.fetched(x);
      for (const auto& x : s.take<load_scatter>())
        s.scattered(x);
    }
    CHECK(results_of(s.one<task_finished>().result) == std::vector(6, errc::ok));
    s.release_all();
    s.check_quiesced(8);
  }
  SECTION("not after the deadline") {
    for (const auto& x : fetches)
      no_room(x);
    s.state.on_tick(t0 + std::chrono::seconds(1));
    CHECK(s.take<load_fetch>().empty());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(6, errc::timeout));
    s.release_all();
    s.check_quiesced(8);
  }
  SECTION("another node may have more room") {
    for (const auto& x : fetches)
      no_room(x);
    s.state.unbind(errc::unreachable);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(6, errc::unreachable));
    s.state.bind(test_binding(8));
    REQUIRE(s.state.start(test_task(6), t0));
    s.located(s.one<load_locate>());
    CHECK(s.take<load_fetch>().size() == 3);
  }
}

TEST_CASE("load: at a node that returns with smaller batches, what fits in one is loaded", "[load_state]") {
  loader s(test_binding(8));
  s.state.unbind(errc::unreachable);
  auto smaller = test_binding(8);
  smaller.batch_keys_max = 2;
  s.state.bind(smaller);
  REQUIRE(s.state.start(test_task(3), t0));
  const auto locate = s.one<load_locate>();
  CHECK(locate.request.keys.items == test_task(2).keys.items);
  s.located(locate);
  s.fetched(s.one<load_fetch>());
  s.scattered(s.one<load_scatter>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::ok, errc::limit_exceeded});
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load: a node that returns with smaller batches gets no larger requests", "[load_state]") {
  loader s(test_binding(8), test_options(4));
  const auto sizes = [&] {
    REQUIRE(s.state.start(test_task(6), t0));
    s.located(s.one<load_locate>());
    std::vector<std::size_t> out;
    for (const auto& x : s.take<load_fetch>())
      out.push_back(x.request.pages.size());
    s.state.unbind(errc::unreachable);
    return out;
  };
  CHECK(sizes() == std::vector<std::size_t>{4, 2});
  auto smaller = test_binding(8);
  smaller.batch_pages_max = 2;
  s.state.bind(smaller);
  CHECK(sizes() == std::vector<std::size_t>{2, 2, 2});
  s.state.bind(test_binding(8));
  CHECK(sizes() == std::vector<std::size_t>{4, 2});
}

TEST_CASE("load: answers that are too short or have unknown codes count as failures", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(3), t0));
  const auto locate = s.one<load_locate>();
  SECTION("locate") {
    locate_reply reply{locations(locate.request.keys)};
    reply.locations.items.pop_back();
    reply.locations[1].status = 77;
    s.state.on_locate(locate.call, reply, t0);
    s.fetched(s.one<load_fetch>());
    s.scattered(s.one<load_scatter>());
  }
  SECTION("fetch") {
    s.located(locate);
    auto frames = s.worker.give(3);
    frames.frames[1].status = 255;
    frames.frames.items.pop_back();
    s.state.on_fetch(s.one<load_fetch>().call, frames, t0);
    s.scattered(s.one<load_scatter>());
  }
  SECTION("scatter") {
    s.located(locate);
    s.fetched(s.one<load_fetch>());
    s.state.on_scatter(s.one<load_scatter>().call, copy_reply{{std::vector<std::uint8_t>{0, errc_count}}, {}}, t0);
  }
  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::ok, errc::internal, errc::internal});
  CHECK(done.result.bytes == test_page_bytes);
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load: a lost answer of the registry is requested again under the same lease", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(2), t0));
  const auto first = s.one<load_locate>();
  s.state.on_locate(first.call, no_answer(), t0 + 300 * ms);
  const auto second = s.one<load_locate>();
  CHECK(second.request.lease == first.request.lease);
  CHECK(second.request.keys == first.request.keys);
  s.located(first);
  CHECK(s.take<load_fetch>().empty());
  s.located(second, t0 + 400 * ms);
  s.fetched(s.one<load_fetch>());
  s.scattered(s.one<load_scatter>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::ok));
  CHECK(s.take<load_release>().size() == 1);
}

TEST_CASE("load: other errors of the registry are final", "[load_state]") {
  loader s{test_binding(8, 2)};
  REQUIRE(s.state.start(test_task(8), t0));
  const auto locates = s.take<load_locate>();
  REQUIRE(locates.size() == 2);
  s.state.on_locate(locates[0].call, fail(errc::limit_exceeded, "too many leases"), t0);
  s.located(locates[1]);
  s.fetched(s.one<load_fetch>());
  s.scattered(s.one<load_scatter>());
  const auto results = results_of(s.one<task_finished>().result);
  CHECK(static_cast<std::size_t>(std::count(results.begin(), results.end(), errc::limit_exceeded)) ==
        locates[0].request.keys.size());
  CHECK(static_cast<std::size_t>(std::count(results.begin(), results.end(), errc::ok)) ==
        locates[1].request.keys.size());
  CHECK(s.take<load_release>().size() == 2);
}

TEST_CASE("load: the deadline ends a task while it locates or fetches, and the lease lasts until nothing is pinned",
          "[load_state]") {
  constexpr auto late = t0 + std::chrono::seconds(1);
  loader s;
  REQUIRE(s.state.start(test_task(2), t0));
  const auto locate = s.one<load_locate>();
  const auto expire = [&] {
    s.state.on_tick(late - 1 * ms);
    CHECK(s.take<task_finished>().empty());
    s.state.on_tick(late);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::timeout));
    CHECK(s.take<load_release>().empty());
    s.state.on_tick(late + 5 * ms);
  };
  SECTION("locate, answered late") {
    expire();
    s.located(locate, late);
    CHECK(s.take<load_fetch>().empty());
  }
  SECTION("locate, lost") {
    expire();
    s.state.on_locate(locate.call, no_answer(), late);
    CHECK(s.take<load_locate>().empty());
  }
  SECTION("fetch") {
    s.located(locate);
    const auto fetch = s.one<load_fetch>();
    expire();
    CHECK(s.state.window_left() == 6);
    s.fetched(fetch, late + 100 * ms);
    CHECK(s.state.window_left() == 8);
    CHECK(s.end_pins() == 1);
    CHECK(s.take<load_scatter>().empty());
  }
  SECTION("fetch of a page that turns out to be bad") {
    s.located(locate);
    const auto fetch = s.one<load_fetch>();
    expire();
    s.fetched(fetch, late, {errc::io_error, errc::timeout});
    const auto invalidate = s.one<load_invalidate>();
    CHECK(invalidate.request.pages.size() == 1);
    s.state.on_invalidate(invalidate.call, finish_reply{same_codes(1)}, late);
  }
  s.released(s.one<load_release>(), late);
  CHECK(s.take<task_finished>().empty());
  s.check_quiesced(8);
}

TEST_CASE("load: a block that is being filled has no result before the answer of the copy engine", "[load_state]") {
  constexpr auto late = t0 + std::chrono::seconds(1);
  loader s{test_binding(2)};
  REQUIRE(s.state.start(test_task(3), t0));
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>());
  const auto scatter = s.one<load_scatter>();
  // The third block waits for the window. The two others may be written at any moment, so the task must not end: its
  // caller gives the blocks of a failed load to other sequences.
  s.state.on_tick(late);
  s.state.on_tick(late + 100 * ms);
  CHECK(s.take<task_finished>().empty());
  CHECK(s.state.open_tasks() == 1);
  CHECK(s.take<load_release>().empty());
  SECTION("it fills them") {
    s.scattered(scatter, late + 150 * ms);
    const auto done = s.one<task_finished>();
    CHECK(results_of(done.result) == std::vector{errc::ok, errc::ok, errc::timeout});
    CHECK(done.result.bytes == 2 * test_page_bytes);
  }
  SECTION("it dies") {
    s.state.on_scatter(scatter.call, fail(errc::unreachable, "gone"), late + 150 * ms);
    CHECK(results_of(s.one<task_finished>().result) ==
          std::vector{errc::unreachable, errc::unreachable, errc::timeout});
  }
  s.release_all();
  s.check_quiesced(2);
}

TEST_CASE("load: the loss of the node ends all tasks, and late answers find nothing", "[load_state]") {
  loader s{test_binding(4)};
  for (std::uint64_t i = 0; i < 3; ++i)
    REQUIRE(s.state.start(test_task(1, 10 * i), t0));
  const auto locates = s.take<load_locate>();
  s.located(locates[1]);
  s.located(locates[2]);
  const auto fetches = s.take<load_fetch>();
  s.fetched(fetches[1], t0, {errc::io_error});
  const auto invalidate = s.one<load_invalidate>();
  CHECK(s.one<task_finished>().task == 3);

  s.state.unbind(errc::unreachable);
  const auto done = s.take<task_finished>();
  REQUIRE(done.size() == 2);
  for (const auto& x : done)
    CHECK(results_of(x.result) == std::vector{errc::unreachable});
  s.check_quiesced(0);

  auto node = test_binding(1);
  node.owner = 78;
  s.state.bind(node);
  REQUIRE(s.state.start(test_task(1, 500), t0));
  s.located(locates[0]);
  s.fetched(fetches[0]);
  s.state.on_invalidate(invalidate.call, finish_reply{same_codes(1)}, t0);
  CHECK(s.state.window_left() == 1);
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>());
  s.scattered(s.one<load_scatter>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok});
  s.release_all();
  s.end_pins();
  CHECK(s.worker.open_pins() == 1); // of the node before, where it ends with that attachment
  CHECK(s.state.window_left() == 1);
  CHECK(s.state.calls_under_way() == 0);
}

TEST_CASE("load: blocks being filled outlive the node and do not touch the next one", "[load_state]") {
  loader s{test_binding(2)};
  REQUIRE(s.state.start(test_task(3), t0));
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>());
  const auto scatter = s.one<load_scatter>();
  s.state.unbind(errc::unreachable);
  CHECK(s.take<task_finished>().empty());
  CHECK(s.state.open_tasks() == 1);

  auto node = test_binding(1);
  node.owner = 78;
  s.state.bind(node);
  const auto code = GENERATE(errc::ok, errc::corrupt);
  s.state.on_scatter(scatter.call, copy_reply{codes({code, errc::ok}), {}}, t0);
  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{code, errc::ok, errc::unreachable});
  // Neither its pin, nor its lease, nor its bad page mean anything to the new node.
  CHECK(s.end_pins() == 0);
  CHECK(s.state.window_left() == 1);
  CHECK(s.state.calls_under_way() == 0);
  CHECK(s.effects.left() == 0);
}

TEST_CASE("load: batches stay whole, however few pages leave the window at once", "[load_state]") {
  loader s{test_binding(8), test_options(4)};
  REQUIRE(s.state.start(test_task(16), t0));
  s.located(s.one<load_locate>());
  const auto fetches = s.take<load_fetch>();
  REQUIRE(fetches.size() == 2);
  // One page of the first batch is not there: its place is free before those of the others.
  s.fetched(fetches[0], t0, {errc::not_found, errc::ok, errc::ok, errc::ok});
  CHECK(s.state.window_left() == 1);
  CHECK(s.take<load_fetch>().empty());
  s.scattered(s.one<load_scatter>());
  CHECK(s.state.window_left() == 0);
  const auto next = s.one<load_fetch>();
  CHECK(next.request.pages.size() == 4);
  s.fetched(fetches[1]);
  s.fetched(next);
  for (const auto& x : s.take<load_scatter>())
    s.scattered(x);
  CHECK(s.one<load_fetch>().request.pages.size() == 4);
}

TEST_CASE("load: the bytes of a batch are bounded", "[load_state]") {
  auto large = test_options(32);
  large.page_bytes = std::uint64_t{16} << 20U;
  loader s{test_binding(64), large};
  REQUIRE(s.state.start(test_task(8), t0));
  s.located(s.one<load_locate>());
  for (const auto& x : s.take<load_fetch>())
    CHECK(x.request.pages.size() == 4);
}

TEST_CASE("load: shutting down the coordinator twice", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(1), t0));
  CHECK(s.take<load_locate>().size() == 1);
  s.state.unbind(errc::shutting_down);
  s.state.unbind(errc::shutting_down);
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::shutting_down});
  s.check_quiesced(0);
}

TEST_CASE("load: an unpin that the node has no room for is repeated until it arrives or the node is lost",
          "[load_state]") {
  loader s{test_binding(2)};
  REQUIRE(s.state.start(test_task(2), t0));
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>());
  s.scattered(s.one<load_scatter>());
  CHECK(s.state.window_left() == 2);
  const auto no_room = fail(errc::limit_exceeded, "1024 requests are under way");
  auto x = s.effects.take<load_unpin>();
  REQUIRE(x.size() == 1);
  s.state.on_unpin(x[0].call, no_room, t0);
  s.state.on_unpin(x[0].call, no_room, t0); // twice is once
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::ok));
  s.release_all();
  CHECK(s.effects.left() == 0);
  CHECK(s.state.needs_ticks());
  SECTION("it arrives") {
    s.state.on_tick(t0 + ms);
    CHECK_FALSE(s.state.needs_ticks());
    CHECK(s.end_pins() == 1);
    s.state.on_tick(t0 + 2 * ms);
    s.check_quiesced(2);
  }
  SECTION("the node is lost") {
    s.state.unbind(errc::unreachable);
    s.state.bind(test_binding(2));
    s.state.on_unpin(x[0].call, no_room, t0);
    s.state.on_tick(t0 + ms);
    CHECK(s.effects.left() == 0);
  }
}

TEST_CASE("load: a repeated answer counts once", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(1), t0));
  const auto locate = s.one<load_locate>();
  s.located(locate);
  s.located(locate);
  const auto fetch = s.one<load_fetch>();
  s.fetched(fetch);
  s.state.on_fetch(fetch.call, frame_reply{}, t0);
  const auto scatter = s.one<load_scatter>();
  s.scattered(scatter);
  s.scattered(scatter);
  CHECK(s.end_pins() == 1);
  const auto release = s.one<load_release>();
  s.released(release);
  s.released(release);
  CHECK(s.take<task_finished>().size() == 1);
  s.check_quiesced(8);
}

TEST_CASE("load: more pages than the window, and a lease that cannot be released", "[load_state]") {
  loader s{test_binding(2), test_options(3)};
  REQUIRE(s.state.start(test_task(7), t0));
  s.located(s.one<load_locate>());
  std::size_t loaded = 0;
  for (int round = 0; round < 20 && s.state.open_tasks() > 0; ++round) {
    const auto fetch = s.one<load_fetch>();
    CHECK(fetch.request.pages.size() <= 2);
    s.fetched(fetch);
    const auto scatter = s.one<load_scatter>();
    loaded += scatter.order.items.size();
    s.scattered(scatter);
  }
  CHECK(loaded == 7);
  CHECK(results_of(s.one<task_finished>().result) == std::vector(7, errc::ok));
  s.state.on_release(s.one<load_release>().call, fail(errc::unreachable, "gone"), t0);
  s.check_quiesced(2);
}

} // namespace transfer_load_state_test
