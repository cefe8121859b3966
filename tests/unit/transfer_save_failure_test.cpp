#include "tests/unit/transfer_saver.hpp"

#include <algorithm>
#include <set>

namespace transfer_save_failure_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

} // namespace

TEST_CASE("save: a lost answer of the registry is requested again with the same ticket", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(2), t0));
  const auto first = s.one<save_reserve>();
  s.state.on_reserve(first.call, no_answer(), t0 + 300 * ms);
  const auto second = s.one<save_reserve>();
  CHECK(second.call != first.call);
  CHECK(second.shard == first.shard);
  CHECK(second.request.ticket == first.request.ticket);
  CHECK(second.request.keys == first.request.keys);
  CHECK(second.request.parents == first.request.parents);
  s.grant(first); // the first answer after all: too late, the second one counts
  CHECK(s.take<save_gather>().empty());
  s.grant(second, t0 + 400 * ms);
  s.gathered(s.one<save_gather>(), t0 + 400 * ms);
  s.filled(s.one<save_fill>(), t0 + 400 * ms);

  const auto commit = s.one<save_commit>();
  s.state.on_commit(commit.call, no_answer(), t0 + 600 * ms);
  const auto again = s.one<save_commit>();
  CHECK(again.request.ticket == commit.request.ticket);
  CHECK(again.request.pages == commit.request.pages);
  CHECK(s.take<task_finished>().empty());
  s.committed(again, t0 + 700 * ms);
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::ok));
  s.check_quiesced(8);
}

TEST_CASE("save: the registry is not asked again after the deadline", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(1), t0));
  SECTION("reserve") {
    s.state.on_reserve(s.one<save_reserve>().call, no_answer(), t0 + 1000 * ms);
  }
  SECTION("commit") {
    s.grant(s.one<save_reserve>());
    s.gathered(s.one<save_gather>());
    s.filled(s.one<save_fill>());
    s.state.on_commit(s.one<save_commit>().call, no_answer(), t0 + 1000 * ms);
  }
  CHECK(s.take<save_reserve>().empty());
  CHECK(s.take<save_commit>().empty());
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::timeout});
  s.check_quiesced(8);
}

TEST_CASE("save: the deadline ends a task in each phase, and its slots are released", "[save_state]") {
  constexpr auto late = t0 + std::chrono::seconds(1);
  saver s;
  REQUIRE(s.state.start(test_task(2), t0));
  const auto reserve = s.one<save_reserve>();
  const auto expire = [&] {
    s.state.on_tick(late - 1 * ms);
    CHECK(s.take<task_finished>().empty());
    s.state.on_tick(late);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::timeout));
    CHECK(s.state.open_tasks() == 0);
    s.state.on_tick(late + 1 * ms);
    CHECK(s.take<task_finished>().empty());
  };

  SECTION("while reserving: the late grant is aborted") {
    expire();
    s.grant(reserve, late);
    CHECK(s.take<save_gather>().empty());
    const auto abort = s.one<save_abort>();
    CHECK(abort.request.ticket == reserve.request.ticket);
    CHECK(abort.request.pages.items == std::vector<page_ref>{{key(0), {0, 7}}, {key(1), {1, 7}}});
    s.aborted(abort);
  }
  SECTION("while reserving, and the answer is lost") {
    expire();
    s.state.on_reserve(reserve.call, no_answer(), late);
    CHECK(s.effects.left() == 0);
  }
  SECTION("while requesting frames: they are released at once") {
    s.places_at_once = false;
    s.grant(reserve);
    const auto place = s.one<save_place>();
    CHECK(place.request.patience == std::chrono::seconds(1));
    expire();
    CHECK(s.state.window_left() == 6);
    CHECK(s.take<save_abort>().empty());
    s.placed(place, late + 1 * ms);
    CHECK(s.take<save_gather>().empty());
    s.gives_back({errc::timeout, errc::timeout}, late + 1 * ms);
    s.aborted(s.one<save_abort>(), late + 2 * ms);
  }
  SECTION("while gathering: nothing is published") {
    s.grant(reserve);
    const auto gather = s.one<save_gather>();
    expire();
    CHECK(s.state.window_left() == 6);
    CHECK(s.take<save_abort>().empty()); // the frames are in use, and the slots as good as
    s.gathered(gather, late);
    s.gives_back({errc::timeout, errc::timeout}, late);
    const auto abort = s.one<save_abort>();
    CHECK(abort.request.pages.size() == 2);
    s.aborted(abort, late);
  }
  SECTION("while filling: nothing is committed, and the window waits for the answer") {
    s.grant(reserve);
    s.gathered(s.one<save_gather>());
    const auto fill = s.one<save_fill>();
    expire();
    CHECK(s.state.window_left() == 6);
    CHECK(s.take<save_abort>().empty());
    s.filled(fill, late + 500 * ms);
    CHECK(s.state.window_left() == 8);
    CHECK(s.take<save_commit>().empty());
    s.aborted(s.one<save_abort>());
  }
  SECTION("while committing: the answer comes too late") {
    s.grant(reserve);
    s.gathered(s.one<save_gather>());
    s.filled(s.one<save_fill>());
    const auto commit = s.one<save_commit>();
    expire();
    s.committed(commit, late);
    CHECK(s.take<save_abort>().empty());
  }
  CHECK(s.take<task_finished>().empty());
  s.check_quiesced(8);
}

TEST_CASE("save: pages that wait for the window at the deadline are aborted at once", "[save_state]") {
  saver s{test_binding(1)};
  REQUIRE(s.state.start(test_task(3), t0));
  s.grant(s.one<save_reserve>());
  const auto gather = s.one<save_gather>();
  s.state.on_tick(t0 + std::chrono::seconds(1));
  const auto waiting = s.one<save_abort>();
  CHECK(waiting.request.pages.items == std::vector<page_ref>{{key(1), {1, 7}}, {key(2), {2, 7}}});
  CHECK(results_of(s.one<task_finished>().result) == std::vector(3, errc::timeout));
  s.aborted(waiting);
  s.gathered(gather, t0 + std::chrono::seconds(2));
  s.gives_back({errc::timeout}, t0 + std::chrono::seconds(2));
  const auto gathered = s.one<save_abort>();
  CHECK(gathered.request.pages.items == std::vector<page_ref>{{key(0), {0, 7}}});
  s.aborted(gathered);
  s.check_quiesced(1);
}

TEST_CASE("save: the room of an expired task goes to waiting tasks when its pin has ended", "[save_state]") {
  saver s{test_binding(2)};
  REQUIRE(s.state.start(test_task(2), t0));
  REQUIRE(s.state.start(test_task(1, 50, std::chrono::seconds(10)), t0));
  for (const auto& x : s.take<save_reserve>())
    s.grant(x);
  s.gathered(s.one<save_gather>());
  const auto fill = s.one<save_fill>();
  s.state.on_tick(t0 + std::chrono::seconds(1));
  CHECK(s.one<task_finished>().task == 1);
  CHECK(s.take<save_gather>().empty());
  s.filled(fill, t0 + std::chrono::seconds(3));
  const auto next = s.one<save_gather>();
  CHECK(next.order.items[0].key == key(50));
}

TEST_CASE("save: the loss of the node ends all tasks, and late answers are ignored", "[save_state]") {
  saver s{test_binding(4)};
  // One task in each phase.
  for (std::uint64_t i = 0; i < 4; ++i)
    REQUIRE(s.state.start(test_task(1, 10 * i), t0));
  const auto reserves = s.take<save_reserve>();
  for (std::size_t i = 1; i < 4; ++i)
    s.grant(reserves[i], t0, static_cast<std::uint32_t>(i));
  const auto gathers = s.take<save_gather>();
  s.gathered(gathers[1]);
  s.gathered(gathers[2]);
  const auto fills = s.take<save_fill>();
  s.filled(fills[1]);
  const auto commit = s.one<save_commit>();

  s.state.unbind(errc::unreachable);
  const auto done = s.take<task_finished>();
  REQUIRE(done.size() == 4);
  std::set<task_id> ended;
  for (const auto& x : done) {
    ended.insert(x.task);
    CHECK(results_of(x.result) == std::vector{errc::unreachable});
  }
  CHECK(ended.size() == 4);
  CHECK_FALSE(s.state.bound());
  s.check_quiesced(0);

  // Attached again: frames are those of the new node, and nothing of the old life touches them.
  auto node = test_binding(2);
  node.owner = 78;
  s.state.bind(node);
  REQUIRE(s.state.start(test_task(2, 500), t0));
  const auto reserve = s.one<save_reserve>();
  CHECK(reserve.request.ticket.owner == 78);
  s.grant(reserves[0]);
  s.gathered(gathers[0]);
  s.filled(fills[0]);
  s.committed(commit);
  s.state.on_abort(commit.call, finish_reply{}, t0);
  CHECK(s.effects.left() == 0);
  CHECK(s.state.window_left() == 2);
  s.grant(reserve);
  const auto gather = s.one<save_gather>();
  CHECK(gather.order.owner == 78);
  s.gathered(gather);
  s.filled(s.one<save_fill>());
  s.committed(s.one<save_commit>());
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::ok));
  CHECK(s.worker.open_pins() == 1); // the pin whose gather outlived the node: it ends with that attachment
  CHECK(s.state.window_left() == 2);
  CHECK(s.state.calls_under_way() == 0);
}

TEST_CASE("save: a fill that the node has no room for is repeated until it arrives or the node is lost",
          "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(2), t0));
  s.grant(s.one<save_reserve>());
  s.gathered(s.one<save_gather>());
  auto first = s.effects.take<save_fill>();
  REQUIRE(first.size() == 1);
  const bool late = GENERATE(false, true);
  if (late)
    s.state.on_tick(t0 + std::chrono::seconds(1));
  s.state.on_fill(first[0].call, fail(errc::limit_exceeded, "1024 requests are under way"), t0);
  CHECK(s.effects.take<save_fill>().empty()); // asking at once would be asking in vain
  CHECK(s.effects.take<save_abort>().empty());
  CHECK(s.state.window_left() == 6);
  CHECK(s.state.needs_ticks());
  SECTION("it arrives") {
    s.state.on_tick(t0 + ms);
    const auto again = s.one<save_fill>();
    CHECK(again.request.pin == first[0].request.pin);
    CHECK(again.request.gathered == first[0].request.gathered);
    s.filled(again);
    if (late)
      s.aborted(s.one<save_abort>());
    else
      s.committed(s.one<save_commit>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, late ? errc::timeout : errc::ok));
    s.check_quiesced(8);
  }
  SECTION("the node is lost") {
    s.state.unbind(errc::unreachable);
    CHECK(s.take<task_finished>().size() == 1);
    s.state.on_tick(t0 + ms);
    s.check_quiesced(0);
  }
}

TEST_CASE("save: a repeated answer counts once", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(1), t0));
  const auto reserve = s.one<save_reserve>();
  s.grant(reserve);
  s.grant(reserve, t0, 40);
  const auto gather = s.one<save_gather>();
  CHECK(gather.order.items[0].where == slot_ref{0, 7});
  s.gathered(gather);
  s.gathered(gather); // and the pin is not ended again
  const auto fill = s.one<save_fill>();
  s.filled(fill);
  s.filled(fill);
  CHECK(s.state.window_left() == 8);
  const auto commit = s.one<save_commit>();
  s.committed(commit);
  s.committed(commit);
  CHECK(s.take<task_finished>().size() == 1);
  s.check_quiesced(8);
}

TEST_CASE("save: tickets of two streams and of two tasks differ", "[save_state]") {
  CHECK(make_ticket(1, 1, 5) != make_ticket(1, 2, 5));
  CHECK(make_ticket(1, 1, 5) != make_ticket(1, 1, 6));
  CHECK(make_ticket(1, 1, 5) != make_ticket(2, 1, 5));
}

} // namespace transfer_save_failure_test
