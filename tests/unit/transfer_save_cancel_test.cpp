#include "tests/unit/transfer_saver.hpp"

#include <array>

namespace transfer_save_cancel_test {

/// A save that is cancelled in each phase. No page is published that was not in its frame by then, each slot is
/// released or committed once, each pin is ended once, and nothing is left.

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

constexpr std::array<std::uint64_t, 1> tag{5};

struct cancelled_saver : saver {
  using saver::saver;

  void start(std::uint32_t count, std::uint64_t first = 0) {
    REQUIRE(state.start(tagged(tag[0], test_task(count, first)), t0));
  }
  void cancel() { state.cancel(tag, t0); }
  void no_room(const save_place& x) { state.on_place(x.call, fail(errc::limit_exceeded, "busy"), t0); }

  /// One abort, of these pages of the first task: positions are slots.
  void abort_of(const std::vector<std::uint32_t>& positions) {
    const auto x = one<save_abort>();
    std::vector<page_ref> expected;
    for (const auto i : positions)
      expected.push_back({key(i), {i, 7}});
    CHECK(x.request.pages.items == expected);
    aborted(x);
  }
  void finished(const std::vector<errc>& expected) {
    const auto done = one<task_finished>();
    CHECK(results_of(done.result) == expected);
    const auto ok = static_cast<std::uint64_t>(std::count(expected.begin(), expected.end(), errc::ok));
    CHECK(done.result.bytes == ok * test_page_bytes);
  }
};

} // namespace

TEST_CASE("save: cancelled while reserving, it releases the granted slots", "[save_state][cancel]") {
  cancelled_saver s;
  s.start(2);
  const auto reserve = s.one<save_reserve>();
  s.cancel();
  s.finished({errc::cancelled, errc::cancelled});
  SECTION("the answer comes") {
    s.grant(reserve);
    s.abort_of({0, 1});
  }
  SECTION("a part is granted") {
    s.state.on_reserve(reserve.call,
                       reserve_reply{std::vector<location>{{{}, static_cast<std::uint32_t>(errc::busy)}, {{1, 7}, 0}}},
                       t0);
    s.abort_of({1});
  }
  SECTION("nothing is granted") {
    s.state.on_reserve(reserve.call, fail(errc::unknown_namespace, "?"), t0);
  }
  SECTION("the answer is lost: it is requested again, so that the slots are released early") {
    s.state.on_reserve(reserve.call, no_answer(), t0);
    const auto again = s.one<save_reserve>();
    CHECK(again.request.ticket == reserve.request.ticket);
    CHECK(again.request.keys == reserve.request.keys);
    SECTION("it arrives") {
      s.grant(again);
      s.abort_of({0, 1});
    }
    SECTION("it is lost again, until the deadline") {
      s.state.on_reserve(again.call, no_answer(), t0 + std::chrono::seconds(1));
    }
  }
  CHECK(s.take<save_gather>().empty());
  s.check_quiesced(8);
}

TEST_CASE("save: cancelled while pages wait for the window, it releases their slots at once", "[save_state][cancel]") {
  cancelled_saver s{test_binding(1)};
  s.start(3);
  s.grant(s.one<save_reserve>());
  const auto gather = s.one<save_gather>();
  s.cancel();
  s.abort_of({1, 2});
  s.finished(std::vector(3, errc::cancelled));
  CHECK(s.state.window_left() == 0); // the copy engine writes to it
  s.gathered(gather);
  s.gives_back({errc::cancelled});
  s.abort_of({0});
  s.check_quiesced(1);
}

TEST_CASE("save: cancelled while requesting frames, it gathers nothing and releases them", "[save_state][cancel]") {
  cancelled_saver s;
  s.places_at_once = false;
  s.start(3);
  s.grant(s.one<save_reserve>());
  const auto place = s.one<save_place>();
  s.cancel();
  s.finished(std::vector(3, errc::cancelled));
  CHECK(s.take<save_abort>().empty()); // the frames may arrive later
  CHECK(s.state.window_left() == 5);
  SECTION("all of them are granted") {
    s.placed(place);
    s.gives_back(std::vector(3, errc::cancelled));
  }
  SECTION("some of them are granted") {
    s.placed(place, t0, {errc::ok, errc::full, errc::ok});
    CHECK(s.state.window_left() == 6);
    s.gives_back(std::vector(3, errc::cancelled));
  }
  SECTION("none is granted") {
    s.placed(place, t0, std::vector(3, errc::full));
  }
  SECTION("the node answers with an error") {
    s.state.on_place(place.call, fail(errc::shutting_down, "?"), t0);
  }
  CHECK(s.take<save_gather>().empty());
  CHECK(s.take<save_fill>().empty());
  s.abort_of({0, 1, 2});
  s.check_quiesced(8);
}

TEST_CASE("save: cancelled while gathering, nothing of it is published", "[save_state][cancel]") {
  cancelled_saver s;
  s.start(2);
  s.grant(s.one<save_reserve>());
  const auto gather = s.one<save_gather>();
  s.cancel();
  s.finished({errc::cancelled, errc::cancelled});
  CHECK(s.take<save_abort>().empty());
  CHECK(s.state.window_left() == 6);
  SECTION("it has gathered") {
    s.gathered(gather);
  }
  SECTION("it has failed") {
    s.state.on_gather(gather.call, fail(errc::device_error, "?"), t0);
  }
  s.gives_back({errc::cancelled, errc::cancelled});
  s.abort_of({0, 1});
  s.check_quiesced(8);
}

TEST_CASE("save: cancelled while filling, gathered pages continue and keep their own result", "[save_state][cancel]") {
  cancelled_saver s{test_binding(), test_options(2)};
  s.start(4);
  s.grant(s.one<save_reserve>());
  const auto gathers = s.take<save_gather>();
  REQUIRE(gathers.size() == 2);
  s.gathered(gathers[0]);
  const auto fill = s.one<save_fill>();
  s.cancel();
  CHECK(s.take<task_finished>().empty());
  s.gathered(gathers[1]);
  s.gives_back({errc::cancelled, errc::cancelled});
  s.abort_of({2, 3});
  SECTION("to the end") {
    s.filled(fill);
    const auto commit = s.one<save_commit>();
    CHECK(commit.request.pages.items == std::vector<page_ref>{{key(0), {0, 7}}, {key(1), {1, 7}}});
    s.committed(commit);
    s.finished({errc::ok, errc::ok, errc::cancelled, errc::cancelled});
  }
  SECTION("with a failure") {
    s.state.on_fill(fill.call, io_reply{codes({errc::ok, errc::io_error})}, t0);
    s.abort_of({1});
    s.committed(s.one<save_commit>());
    s.finished({errc::ok, errc::io_error, errc::cancelled, errc::cancelled});
  }
  SECTION("up to the deadline") {
    s.state.on_tick(t0 + std::chrono::seconds(1));
    s.finished({errc::timeout, errc::timeout, errc::cancelled, errc::cancelled});
    s.filled(fill, t0 + std::chrono::seconds(2));
    s.abort_of({0, 1});
  }
  SECTION("until the node is lost") {
    s.state.unbind(errc::unreachable);
    s.finished({errc::unreachable, errc::unreachable, errc::cancelled, errc::cancelled});
    s.filled(fill);
    s.check_quiesced(0);
    return;
  }
  s.check_quiesced(8);
}

TEST_CASE("save: cancelled while the node has no room, it does not request frames again", "[save_state][cancel]") {
  cancelled_saver s;
  s.places_at_once = false;
  s.start(2);
  s.grant(s.one<save_reserve>());
  const auto place = s.one<save_place>();
  SECTION("the node refuses later") {
    s.cancel();
    s.finished({errc::cancelled, errc::cancelled});
    s.no_room(place);
    s.abort_of({0, 1});
  }
  SECTION("it waits for room") {
    s.no_room(place);
    CHECK(s.take<save_place>().empty());
    s.cancel();
    s.abort_of({0, 1});
    s.finished({errc::cancelled, errc::cancelled});
  }
  SECTION("it repeats the request") {
    s.no_room(place);
    s.state.on_tick(t0);
    const auto again = s.one<save_place>();
    s.cancel();
    s.finished({errc::cancelled, errc::cancelled});
    s.placed(again);
    s.gives_back({errc::cancelled, errc::cancelled});
    s.abort_of({0, 1});
  }
  s.state.on_tick(t0);
  CHECK(s.take<save_place>().empty());
  CHECK(s.take<save_gather>().empty());
  s.check_quiesced(8);
}

TEST_CASE("save: the room of a cancelled task goes to waiting tasks", "[save_state][cancel]") {
  cancelled_saver s{test_binding(2)};
  s.places_at_once = false;
  s.start(2);
  REQUIRE(s.state.start(test_task(1, 50), t0));
  for (const auto& x : s.take<save_reserve>())
    s.grant(x);
  const auto place = s.one<save_place>();
  s.cancel();
  s.finished({errc::cancelled, errc::cancelled});
  s.no_room(place);
  s.abort_of({0, 1});
  CHECK(s.take<save_place>().empty()); // there is no room, after all
  s.state.on_tick(t0);
  const auto next = s.one<save_place>();
  CHECK(next.request.pages[0].key == key(50));
  s.placed(next);
  s.gathered(s.one<save_gather>());
  s.filled(s.one<save_fill>());
  s.committed(s.one<save_commit>());
  s.finished({errc::ok});
  s.check_quiesced(2);
}

TEST_CASE("save: cancelled while committing, it is saved", "[save_state][cancel]") {
  cancelled_saver s;
  s.start(2);
  s.grant(s.one<save_reserve>());
  s.gathered(s.one<save_gather>());
  s.filled(s.one<save_fill>());
  const auto commit = s.one<save_commit>();
  SECTION("the answer comes") {
    s.cancel();
    s.committed(commit);
    s.finished({errc::ok, errc::ok});
  }
  SECTION("the answer is lost: before or after, it is requested again") {
    const bool before = GENERATE(false, true);
    if (before)
      s.cancel();
    s.state.on_commit(commit.call, no_answer(), t0);
    const auto again = s.one<save_commit>();
    CHECK(again.request.pages == commit.request.pages);
    if (!before)
      s.cancel();
    CHECK(s.take<task_finished>().empty());
    s.committed(again);
    s.finished({errc::ok, errc::ok});
  }
  SECTION("it arrives too late") {
    s.cancel();
    s.state.on_commit(commit.call, finish_reply{same_codes(2, errc::expired)}, t0);
    s.finished({errc::expired, errc::expired});
  }
  CHECK(s.take<save_abort>().empty());
  s.check_quiesced(8);
}

TEST_CASE("save: a late or repeated cancel or one of an unknown task changes nothing", "[save_state][cancel]") {
  cancelled_saver s;
  s.cancel();
  s.start(1);
  s.state.cancel({}, t0);
  s.state.cancel(std::vector<std::uint64_t>{0, 4, 6, ~std::uint64_t{0}}, t0);
  s.grant(s.one<save_reserve>());
  s.gathered(s.one<save_gather>());
  s.cancel();
  s.state.cancel(std::vector<std::uint64_t>{5, 5, 9, 5}, t0);
  s.filled(s.one<save_fill>());
  s.committed(s.one<save_commit>());
  s.finished({errc::ok});
  s.cancel();
  CHECK(s.effects.left() == 0);

  // A later task under the same tag is separate.
  s.start(1);
  s.grant(s.one<save_reserve>());
  s.gathered(s.one<save_gather>());
  s.filled(s.one<save_fill>());
  s.committed(s.one<save_commit>());
  s.finished({errc::ok});
  s.check_quiesced(8);
}

TEST_CASE("save: all tasks with a tag are cancelled, and no other", "[save_state][cancel]") {
  cancelled_saver s;
  s.start(1, 0);
  s.start(1, 10);
  REQUIRE(s.state.start(tagged(6, test_task(1, 20)), t0));
  REQUIRE(s.state.start(test_task(1, 30), t0)); // has none
  const auto reserves = s.take<save_reserve>();
  s.state.cancel(std::vector<std::uint64_t>{0, 7, 5}, t0);
  const auto done = s.take<task_finished>();
  REQUIRE(done.size() == 2);
  CHECK(done[0].task == 1);
  CHECK(done[1].task == 2);
  for (std::uint32_t i = 0; i < 4; ++i)
    s.grant(reserves[i], t0, i);
  for (const auto& x : s.take<save_abort>())
    s.aborted(x);
  for (const auto& x : s.take<save_gather>())
    s.gathered(x);
  for (const auto& x : s.take<save_fill>())
    s.filled(x);
  for (const auto& x : s.take<save_commit>())
    s.committed(x);
  for (const auto& x : s.take<task_finished>())
    CHECK(results_of(x.result) == std::vector{errc::ok});
  s.check_quiesced(8);
}

} // namespace transfer_save_cancel_test
