#include "tests/unit/transfer_saver.hpp"

#include <algorithm>
#include <set>

namespace transfer_save_state_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

} // namespace

TEST_CASE("save: reserve, place, gather, fill, commit, and only then saved", "[save_state]") {
  saver s;
  s.places_at_once = false;
  const auto work = test_task(3);
  const auto id = s.state.start(work, t0);
  REQUIRE(id);
  CHECK(s.state.next_deadline() == t0 + work.deadline);

  const auto reserve = s.one<save_reserve>();
  CHECK(reserve.request.ns == test_namespace);
  CHECK(reserve.request.rank == 3);
  CHECK(reserve.request.ticket.owner == 77);
  CHECK(reserve.request.keys == work.keys);
  CHECK(reserve.request.parents.items == std::vector<key_digest>{work.parent, work.keys[0], work.keys[1]});
  CHECK(reserve.request.expires_in >= work.deadline);
  s.grant(reserve, t0 + 3 * ms);

  const auto place = s.one<save_place>();
  CHECK(place.request.patience == work.deadline - 3 * ms);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(place.request.pages[i] == page_ref{work.keys[i], {i, 7}});
  CHECK(s.take<save_gather>().empty());
  CHECK(s.state.window_left() == 5);
  const auto frames = s.worker.give(3);
  s.state.on_place(place.call, frames, t0 + 5 * ms);

  const auto gather = s.one<save_gather>();
  CHECK(gather.order.owner == 77);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(gather.order.items[i] == copy_item{work.keys[i], {i, 7}, frames.frames[i].offset, work.blocks[i]});
  CHECK(s.state.window_left() == 5);
  s.gathered(gather, t0 + 9 * ms);

  const auto fill = s.one<save_fill>();
  CHECK(fill.request.pin == frames.pin);
  CHECK(fill.request.gathered == same_codes(3));
  CHECK(fill.request.deadline == work.deadline - 9 * ms);
  CHECK(s.take<save_commit>().empty());
  CHECK(s.state.window_left() == 5);
  s.filled(fill, t0 + 12 * ms);
  CHECK(s.state.window_left() == 8);

  const auto commit = s.one<save_commit>();
  CHECK(commit.request.ticket == reserve.request.ticket);
  CHECK(commit.request.pages.size() == 3);
  CHECK(commit.request.pages[2] == page_ref{work.keys[2], {2, 7}});
  CHECK(commit.request.origin == page_origin::client);
  CHECK(s.take<task_finished>().empty());
  s.committed(commit, t0 + 18 * ms);

  const auto done = s.one<task_finished>();
  CHECK(done.task == *id);
  CHECK(results_of(done.result) == std::vector<errc>(3, errc::ok));
  CHECK(done.result.bytes == 3 * test_page_bytes);
  CHECK(done.result.timing.registry == 3 * ms);
  CHECK(done.result.timing.copy == 4 * ms);
  CHECK(done.result.timing.move == 2 * ms);
  CHECK(done.result.timing.io == 5 * ms);
  CHECK(done.result.timing.finish == 6 * ms);
  s.check_quiesced(8);
}

TEST_CASE("save: a key that is stored, being written or without a slot needs no frame", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(4), t0));
  const auto reserve = s.one<save_reserve>();
  reserve_reply reply{locations(reserve.request.keys)};
  reply.results[0] = {{}, static_cast<std::uint32_t>(errc::exists)};
  reply.results[1] = {{}, static_cast<std::uint32_t>(errc::busy)};
  reply.results[3] = {{}, static_cast<std::uint32_t>(errc::full)};
  s.state.on_reserve(reserve.call, reply, t0);
  const auto gather = s.one<save_gather>();
  REQUIRE(gather.order.items.size() == 1);
  s.gathered(gather);
  s.filled(s.one<save_fill>());
  s.committed(s.one<save_commit>());
  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::exists, errc::busy, errc::ok, errc::full});
  CHECK(done.result.bytes == test_page_bytes);
  CHECK(s.take<save_abort>().empty());
  s.check_quiesced(8);
}

TEST_CASE("save: transient pages are committed as such", "[save_state]") {
  saver s;
  auto work = test_task(3);
  work.origin = page_origin::transient;
  REQUIRE(s.state.start(work, t0));
  s.grant(s.one<save_reserve>(), t0);
  s.state.on_place(s.one<save_place>().call, s.worker.give(3), t0);
  s.gathered(s.one<save_gather>(), t0);
  s.filled(s.one<save_fill>(), t0);
  const auto commit = s.one<save_commit>();
  CHECK(commit.request.origin == page_origin::transient);
  s.committed(commit, t0);
  CHECK(results_of(s.one<task_finished>().result) == std::vector<errc>(3, errc::ok));
}

TEST_CASE("save: a task without blocks is answered at once", "[save_state]") {
  saver s;
  for (int i = 0; i < 3; ++i) {
    const auto id = s.state.start(test_task(0), t0);
    REQUIRE(id);
    const auto done = s.one<task_finished>();
    CHECK(done.task == *id);
    CHECK(done.result.results.empty());
    s.check_quiesced(8);
  }
}

TEST_CASE("save: an invalid task is refused with the reason", "[save_state]") {
  saver s{test_binding(), test_options(32, 2)};
  const auto refused = [&](const transfer_task& work) {
    const auto id = s.state.start(work, t0);
    REQUIRE_FALSE(id);
    CHECK_FALSE(id.error().text.empty());
    CHECK(s.effects.left() == 0);
    return id.error().code;
  };
  auto uneven = test_task(2);
  uneven.blocks.items.pop_back();
  CHECK(refused(uneven) == errc::invalid_argument);
  CHECK(refused(test_task(65)) == errc::limit_exceeded);
  CHECK(refused(test_task(1, 0, duration::zero())) == errc::invalid_argument);
  CHECK(refused(test_task(1, 0, -1 * ms)) == errc::invalid_argument);
  CHECK(refused(test_task(1, 0, task_time_max + 1 * ms)) == errc::invalid_argument);
  CHECK(refused(test_task(1, 0, duration::max())) == errc::invalid_argument);
  CHECK(refused(test_task(1, 0, duration::min())) == errc::invalid_argument);

  REQUIRE(s.state.start(test_task(1, 0, task_time_max), t0));
  REQUIRE(s.state.start(test_task(1, 1), t0));
  CHECK(s.take<save_reserve>().size() == 2);
  CHECK(refused(test_task(1, 2)) == errc::limit_exceeded);
  s.state.unbind(errc::unreachable);
  CHECK(s.take<task_finished>().size() == 2);
  CHECK(refused(test_task(1)) == errc::unreachable);
}

TEST_CASE("save: at a node that returns with smaller batches, what fits in one is saved", "[save_state]") {
  saver s(test_binding(8));
  s.state.unbind(errc::unreachable);
  auto smaller = test_binding(8);
  smaller.batch_keys_max = 2;
  s.state.bind(smaller);
  REQUIRE(s.state.start(test_task(3), t0));
  const auto reserve = s.one<save_reserve>();
  CHECK(reserve.request.keys.items == test_task(2).keys.items);
  s.grant(reserve);
  s.gathered(s.one<save_gather>());
  s.filled(s.one<save_fill>());
  s.committed(s.one<save_commit>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::ok, errc::limit_exceeded});
  s.check_quiesced(8);
}

TEST_CASE("save: keys go to their shards, with their parents", "[save_state]") {
  constexpr std::uint32_t shards = 4;
  saver s{test_binding(64, shards)};
  const auto work = test_task(40);
  REQUIRE(s.state.start(work, t0));
  const auto reserves = s.take<save_reserve>();
  REQUIRE(reserves.size() == shards);
  std::size_t keys = 0;
  for (const auto& x : reserves) {
    CHECK(x.request.ticket == reserves[0].request.ticket);
    REQUIRE(x.request.parents.size() == x.request.keys.size());
    for (std::size_t i = 0; i < x.request.keys.size(); ++i) {
      CHECK(shard_of(x.request.keys[i], shards) == x.shard);
      const auto at = static_cast<std::size_t>(std::find(work.keys.begin(), work.keys.end(), x.request.keys[i]) -
                                               work.keys.begin());
      REQUIRE(at < work.keys.size());
      CHECK(x.request.parents[i] == (at == 0 ? work.parent : work.keys[at - 1]));
      ++keys;
    }
  }
  CHECK(keys == work.keys.size());

  std::uint32_t slot = 0;
  for (const auto& x : reserves) {
    s.grant(x, t0, slot);
    slot += static_cast<std::uint32_t>(x.request.keys.size());
  }
  for (const auto& x : s.take<save_gather>())
    s.gathered(x);
  for (const auto& x : s.take<save_fill>())
    s.filled(x);
  std::size_t pages = 0;
  for (const auto& x : s.take<save_commit>()) {
    for (const auto& page : x.request.pages)
      CHECK(shard_of(page.key, shards) == x.shard);
    pages += x.request.pages.size();
    s.committed(x);
  }
  CHECK(pages == work.keys.size());
  CHECK(s.one<task_finished>().result.bytes == work.keys.size() * test_page_bytes);
  s.check_quiesced(64);
}

TEST_CASE("save: shards answer in any order, pages are gathered in prefix order", "[save_state]") {
  saver s{test_binding(1, 3)};
  const auto work = test_task(12);
  REQUIRE(s.state.start(work, t0));
  auto reserves = s.take<save_reserve>();
  std::reverse(reserves.begin(), reserves.end());
  for (const auto& x : reserves)
    s.grant(x);
  std::vector<key_digest> order;
  for (;;) {
    const auto gathers = s.take<save_gather>();
    if (gathers.empty())
      break;
    REQUIRE(gathers.size() == 1);
    order.push_back(gathers[0].order.items[0].key);
    s.gathered(gathers[0]);
    s.filled(s.one<save_fill>());
  }
  REQUIRE(order.size() == work.keys.size());
  // The first went out before the other shards had answered; the rest is in order.
  std::vector<std::size_t> positions;
  for (const auto& k : order)
    positions.push_back(static_cast<std::size_t>(std::find(work.keys.begin(), work.keys.end(), k) - work.keys.begin()));
  CHECK(std::is_sorted(positions.begin() + 1, positions.end()));
}

TEST_CASE("save: more pages than the window has, in batches, never more than that", "[save_state]") {
  constexpr std::uint32_t window = 3;
  saver s{test_binding(window), test_options(2)};
  s.places_at_once = false;
  REQUIRE(s.state.start(test_task(11), t0));
  s.grant(s.one<save_reserve>());
  std::size_t asked = 0; // and not ended
  std::vector<save_fill> filling;
  std::size_t committed = 0;
  auto now = t0;
  for (int round = 0; round < 100 && s.state.open_tasks() > 0; ++round) {
    for (const auto& x : s.take<save_place>()) {
      CHECK(x.request.pages.size() <= 2);
      asked += x.request.pages.size();
      s.placed(x, now);
    }
    for (const auto& x : s.take<save_gather>())
      s.gathered(x, now);
    CHECK(asked + s.state.window_left() == window);
    for (auto& x : s.take<save_fill>())
      filling.push_back(std::move(x));
    REQUIRE_FALSE(filling.empty());
    now += 1 * ms;
    const auto ended = filling.back();
    filling.pop_back();
    asked -= ended.request.gathered.size();
    s.filled(ended, now);
    for (const auto& x : s.take<save_commit>()) {
      committed += x.request.pages.size();
      s.committed(x, now);
    }
  }
  CHECK(committed == 11);
  const auto done = s.one<task_finished>();
  CHECK(done.result.timing.window_wait > duration::zero());
  s.check_quiesced(window);
}

TEST_CASE("save: a page without a frame fails alone and leaves the window at once", "[save_state]") {
  saver s{test_binding(4)};
  s.places_at_once = false;
  REQUIRE(s.state.start(test_task(4), t0));
  s.grant(s.one<save_reserve>());
  const auto place = s.one<save_place>();
  CHECK(s.state.window_left() == 0);
  SECTION("memory is short, or the slot was reassigned") {
    s.placed(place, t0, {errc::ok, errc::full, errc::ok, errc::stale});
    CHECK(s.state.window_left() == 2);
    const auto abort = s.one<save_abort>();
    CHECK(abort.request.pages.items == std::vector<page_ref>{{key(1), {1, 7}}, {key(3), {3, 7}}});
    s.aborted(abort);
    const auto gather = s.one<save_gather>();
    CHECK(gather.order.items.size() == 2);
    s.gathered(gather);
    const auto fill = s.one<save_fill>();
    CHECK(fill.request.gathered == codes({errc::ok, errc::full, errc::ok, errc::stale}));
    s.filled(fill);
    const auto commit = s.one<save_commit>();
    CHECK(commit.request.pages.items == std::vector<page_ref>{{key(0), {0, 7}}, {key(2), {2, 7}}});
    s.committed(commit);
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::full, errc::ok, errc::stale});
  }
  SECTION("no page gets a frame") {
    s.placed(place, t0, std::vector(4, errc::full));
    CHECK(s.state.window_left() == 4);
    CHECK(s.take<save_fill>().empty()); // nothing is pinned
    s.aborted(s.one<save_abort>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(4, errc::full));
  }
  SECTION("the place is refused as a whole") {
    s.state.on_place(place.call, fail(errc::shutting_down, "draining"), t0);
    CHECK(s.take<save_fill>().empty());
    s.aborted(s.one<save_abort>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(4, errc::shutting_down));
  }
  s.check_quiesced(4);
}

TEST_CASE("save: frames that arrive after the deadline are released, even before the timer fires", "[save_state]") {
  saver s;
  s.places_at_once = false;
  REQUIRE(s.state.start(test_task(2), t0));
  s.grant(s.one<save_reserve>());
  s.placed(s.one<save_place>(), t0 + std::chrono::seconds(1));
  CHECK(s.take<save_gather>().empty());
  s.gives_back({errc::timeout, errc::timeout}, t0 + std::chrono::seconds(1));
  s.aborted(s.one<save_abort>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::timeout));
  s.check_quiesced(8);
}

TEST_CASE("save: tasks share the window in order of arrival", "[save_state]") {
  saver s{test_binding(4), test_options(2)};
  REQUIRE(s.state.start(test_task(3, 0), t0));
  REQUIRE(s.state.start(test_task(3, 100), t0));
  REQUIRE(s.state.start(test_task(1, 200), t0));
  const auto reserves = s.take<save_reserve>();
  REQUIRE(reserves.size() == 3);
  CHECK(reserves[0].request.ticket != reserves[1].request.ticket);
  for (auto i = reserves.rbegin(); i != reserves.rend(); ++i)
    s.grant(*i);
  // The last task was granted first and has its frame; the others come in order of arrival as there is room.
  std::vector<key_digest> order;
  for (int round = 0; round < 20; ++round)
    for (const auto& x : s.take<save_gather>()) {
      for (const auto& item : x.order.items)
        order.push_back(item.key);
      s.gathered(x);
      for (const auto& w : s.take<save_fill>())
        s.filled(w);
      for (const auto& c : s.take<save_commit>())
        s.committed(c);
    }
  CHECK(order == std::vector{key(200), key(100), key(101), key(102), key(0), key(1), key(2)});
  CHECK(s.take<task_finished>().size() == 3);
  s.check_quiesced(4);
}

TEST_CASE("save: a page that cannot be gathered or filled releases its slot and fails alone", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(4), t0));
  s.grant(s.one<save_reserve>());
  const auto gather = s.one<save_gather>();
  s.state.on_gather(gather.call, copy_reply{codes({errc::ok, errc::out_of_range, errc::ok, errc::ok}), {}}, t0);
  CHECK(s.state.window_left() == 4); // its frame is part of the pin
  const auto first_abort = s.one<save_abort>();
  REQUIRE(first_abort.request.pages.size() == 1);
  CHECK(first_abort.request.pages[0] == page_ref{key(1), {1, 7}});

  const auto fill = s.one<save_fill>();
  CHECK(fill.request.gathered == codes({errc::ok, errc::out_of_range, errc::ok, errc::ok}));
  // The result of the page that was not gathered does not matter.
  s.state.on_fill(fill.call, io_reply{codes({errc::no_space, errc::ok, errc::ok, errc::timeout})}, t0);
  CHECK(s.state.window_left() == 8);
  const auto second_abort = s.one<save_abort>();
  CHECK(second_abort.request.pages.items == std::vector<page_ref>{{key(0), {0, 7}}, {key(3), {3, 7}}});
  const auto commit = s.one<save_commit>();
  CHECK(commit.request.pages.items == std::vector<page_ref>{{key(2), {2, 7}}});
  s.committed(commit);

  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::no_space, errc::out_of_range, errc::ok, errc::timeout});
  CHECK(done.result.bytes == test_page_bytes);
  // It is answered although the aborts are in progress, whatever their results.
  CHECK(s.state.calls_under_way() == 2);
  s.state.on_abort(first_abort.call, no_answer(), t0);
  s.aborted(second_abort);
  s.check_quiesced(8);
}

TEST_CASE("save: an order that is refused as a whole fails all its pages", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(2), t0));
  SECTION("by the registry") {
    s.state.on_reserve(s.one<save_reserve>().call, fail(errc::unknown_namespace, "x"), t0);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::unknown_namespace));
    CHECK(s.take<save_abort>().empty());
  }
  SECTION("by the copy engine") {
    s.grant(s.one<save_reserve>());
    s.state.on_gather(s.one<save_gather>().call, fail(errc::expired, "another attachment"), t0);
    s.gives_back({errc::expired, errc::expired});
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::expired));
    s.aborted(s.one<save_abort>());
  }
  SECTION("by the io worker") {
    s.grant(s.one<save_reserve>());
    s.gathered(s.one<save_gather>());
    s.state.on_fill(s.one<save_fill>().call, fail(errc::shutting_down, "draining"), t0);
    CHECK(s.take<save_commit>().empty());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::shutting_down));
    s.aborted(s.one<save_abort>());
  }
  SECTION("by the registry, at the commit") {
    s.grant(s.one<save_reserve>());
    s.gathered(s.one<save_gather>());
    s.filled(s.one<save_fill>());
    s.state.on_commit(s.one<save_commit>().call, fail(errc::unreachable, "gone"), t0);
    const auto done = s.one<task_finished>();
    CHECK(results_of(done.result) == std::vector(2, errc::unreachable));
    CHECK(done.result.bytes == 0);
  }
  s.check_quiesced(8);
}

TEST_CASE("save: a request that the node has no room for is repeated when there may be some", "[save_state]") {
  saver s(test_binding(8), test_options(2));
  s.places_at_once = false;
  const auto no_room = fail(errc::limit_exceeded, "4096 pages are under way");
  REQUIRE(s.state.start(test_task(4), t0));
  s.grant(s.one<save_reserve>());
  const auto places = s.take<save_place>();
  REQUIRE(places.size() == 2);
  s.state.on_place(places[1].call, no_room, t0);
  CHECK(s.take<save_place>().empty());
  CHECK(s.take<save_abort>().empty()); // its slots are kept
  CHECK(s.state.window_left() == 6);
  s.placed(places[0]);
  const auto again = s.one<save_place>();
  CHECK(again.request.pages.items == places[1].request.pages.items);
  s.gathered(s.one<save_gather>());
  s.filled(s.one<save_fill>());
  SECTION("in time") {
    s.placed(again);
    s.gathered(s.one<save_gather>());
    s.filled(s.one<save_fill>());
    for (const auto& x : s.take<save_commit>())
      s.committed(x);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(4, errc::ok));
  }
  SECTION("abandoned at the deadline together with its slots") {
    s.state.on_place(again.call, no_room, t0 + std::chrono::seconds(1));
    s.committed(s.one<save_commit>());
    const auto abort = s.one<save_abort>();
    CHECK(abort.request.pages.size() == 2);
    s.aborted(abort);
    CHECK(results_of(s.one<task_finished>().result) ==
          std::vector{errc::ok, errc::ok, errc::limit_exceeded, errc::limit_exceeded});
  }
  s.check_quiesced(8);
}

TEST_CASE("save: a node that returns with smaller batches gets no larger requests", "[save_state]") {
  saver s(test_binding(8), test_options(4));
  s.places_at_once = false;
  const auto sizes = [&] {
    REQUIRE(s.state.start(test_task(6), t0));
    s.grant(s.one<save_reserve>());
    std::vector<std::size_t> out;
    for (const auto& x : s.take<save_place>())
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

TEST_CASE("save: a page is saved only if the commit says so, page by page", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(3), t0));
  s.grant(s.one<save_reserve>());
  s.gathered(s.one<save_gather>());
  s.filled(s.one<save_fill>());
  s.state.on_commit(s.one<save_commit>().call, finish_reply{codes({errc::ok, errc::expired, errc::stale})}, t0);
  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::ok, errc::expired, errc::stale});
  CHECK(done.result.bytes == test_page_bytes);
  s.check_quiesced(8);
}

TEST_CASE("save: answers that are too short or have unknown codes count as failures", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(3), t0));
  const auto reserve = s.one<save_reserve>();
  SECTION("reserve") {
    reserve_reply reply{locations(reserve.request.keys)};
    reply.results.items.pop_back();
    reply.results[1].status = 200;
    s.state.on_reserve(reserve.call, reply, t0);
    s.gathered(s.one<save_gather>());
    s.filled(s.one<save_fill>());
    s.committed(s.one<save_commit>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::internal, errc::internal});
  }
  SECTION("gather") {
    s.grant(reserve);
    s.state.on_gather(s.one<save_gather>().call, copy_reply{{std::vector<std::uint8_t>{0, 255}}, {}}, t0);
    s.filled(s.one<save_fill>());
    s.committed(s.one<save_commit>());
    s.aborted(s.one<save_abort>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::internal, errc::internal});
  }
  SECTION("place") {
    s.places_at_once = false;
    s.grant(reserve);
    auto frames = s.worker.give(3);
    frames.frames.items.pop_back();
    frames.frames[1].status = 200;
    s.state.on_place(s.one<save_place>().call, frames, t0);
    s.aborted(s.one<save_abort>());
    s.gathered(s.one<save_gather>());
    s.filled(s.one<save_fill>());
    s.committed(s.one<save_commit>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::internal, errc::internal});
  }
  SECTION("place, with frames that nothing pins") {
    s.places_at_once = false;
    s.grant(reserve);
    frame_reply frames;
    frames.frames.items.resize(3);
    s.state.on_place(s.one<save_place>().call, frames, t0);
    CHECK(s.take<save_gather>().empty());
    s.aborted(s.one<save_abort>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(3, errc::internal));
  }
  SECTION("fill") {
    s.grant(reserve);
    s.gathered(s.one<save_gather>());
    s.state.on_fill(s.one<save_fill>().call, io_reply{std::vector<std::uint8_t>{0, errc_count}}, t0);
    s.committed(s.one<save_commit>());
    s.aborted(s.one<save_abort>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::internal, errc::internal});
  }
  SECTION("commit") {
    s.grant(reserve);
    s.gathered(s.one<save_gather>());
    s.filled(s.one<save_fill>());
    s.state.on_commit(s.one<save_commit>().call, finish_reply{std::vector<std::uint8_t>{0, 99}}, t0);
    const auto done = s.one<task_finished>();
    CHECK(results_of(done.result) == std::vector{errc::ok, errc::internal, errc::internal});
    CHECK(done.result.bytes == test_page_bytes);
  }
  SECTION("too long") {
    reserve_reply reply{locations(reserve.request.keys)};
    for (std::uint32_t i = 0; i < 100; ++i)
      reply.results.items.push_back({{50 + i, 7}, 0});
    s.state.on_reserve(reserve.call, reply, t0);
    const auto gather = s.one<save_gather>();
    CHECK(gather.order.items.size() == 3);
    s.state.on_gather(gather.call, copy_reply{same_codes(100), {}}, t0);
    s.state.on_fill(s.one<save_fill>().call, io_reply{same_codes(100)}, t0);
    s.state.on_commit(s.one<save_commit>().call, finish_reply{same_codes(100)}, t0);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(3, errc::ok));
  }
  s.check_quiesced(8);
}

TEST_CASE("save: a copy engine that reports a wrong time cannot overflow the sums", "[save_state]") {
  saver s{test_binding(), test_options(1)};
  REQUIRE(s.state.start(test_task(3), t0));
  s.grant(s.one<save_reserve>());
  for (const auto& x : s.take<save_gather>())
    s.state.on_gather(x.call, copy_reply{same_codes(1), duration::max()}, t0 + 2 * ms);
  for (const auto& x : s.take<save_fill>())
    s.filled(x);
  for (const auto& x : s.take<save_commit>())
    s.committed(x);
  const auto done = s.one<task_finished>();
  CHECK(done.result.timing.move == 6 * ms);
}

} // namespace transfer_save_state_test
