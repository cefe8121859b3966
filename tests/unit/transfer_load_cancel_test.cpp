#include "tests/unit/transfer_loader.hpp"

#include <array>

namespace transfer_load_cancel_test {

/// A load that is cancelled in each phase. No further block is written, and neither a lease nor a pin is left.

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

constexpr std::array<std::uint64_t, 1> tag{5};

struct cancelled_loader : loader {
  using loader::loader;

  void start(std::uint32_t count) { REQUIRE(state.start(tagged(tag[0], test_task(count)), t0)); }
  void cancel() { state.cancel(tag, t0); }
  void finished(const std::vector<errc>& expected) { CHECK(results_of(one<task_finished>().result) == expected); }
};

} // namespace

TEST_CASE("load: cancelled while locating pages, it releases the lease", "[load_state][cancel]") {
  cancelled_loader s;
  s.start(2);
  const auto locate = s.one<load_locate>();
  s.cancel();
  s.finished({errc::cancelled, errc::cancelled});
  CHECK(s.take<load_release>().empty()); // the lease may not be there yet
  SECTION("pages are found") {
    s.located(locate);
  }
  SECTION("the answer is lost") {
    s.state.on_locate(locate.call, no_answer(), t0);
    CHECK(s.take<load_locate>().empty());
  }
  CHECK(s.take<load_fetch>().empty());
  s.released(s.one<load_release>());
  s.check_quiesced(8);
}

TEST_CASE("load: cancelled while fetching, it scatters nothing and unpins its frames", "[load_state][cancel]") {
  cancelled_loader s{test_binding(2)};
  s.start(3);
  s.located(s.one<load_locate>());
  const auto fetch = s.one<load_fetch>();
  s.cancel();
  s.finished(std::vector(3, errc::cancelled));
  CHECK(s.take<load_release>().empty());
  CHECK(s.state.window_left() == 0);
  SECTION("frames are granted") {
    s.fetched(fetch);
    CHECK(s.state.window_left() == 2);
    CHECK(s.end_pins() == 1);
  }
  SECTION("the node has no room") {
    s.state.on_fetch(fetch.call, fail(errc::limit_exceeded, "busy"), t0);
  }
  SECTION("a page is bad, also for other readers") {
    s.fetched(fetch, t0, {errc::ok, errc::io_error});
    CHECK(s.end_pins() == 1);
    const auto bad = s.one<load_invalidate>();
    CHECK(bad.request.pages.items == std::vector<page_ref>{{key(1), {1, 7}}});
    s.state.on_invalidate(bad.call, finish_reply{same_codes(1)}, t0);
  }
  CHECK(s.take<load_scatter>().empty());
  CHECK(s.take<load_fetch>().empty());
  s.released(s.one<load_release>());
  s.check_quiesced(2);
}

TEST_CASE("load: cancelled while scattering, its blocks keep the result of the copy engine", "[load_state][cancel]") {
  cancelled_loader s{test_binding(4), test_options(2)};
  s.start(5);
  s.located(s.one<load_locate>());
  const auto fetches = s.take<load_fetch>();
  REQUIRE(fetches.size() == 2);
  s.fetched(fetches[0]);
  const auto scatter = s.one<load_scatter>();
  s.cancel();
  CHECK(s.take<task_finished>().empty());
  SECTION("the other fetch ends") {
    s.fetched(fetches[1]);
  }
  SECTION("the node has no room for the other fetch") {
    s.state.on_fetch(fetches[1].call, fail(errc::limit_exceeded, "busy"), t0);
    s.state.on_tick(t0);
  }
  CHECK(s.take<load_scatter>().empty());
  CHECK(s.take<load_fetch>().empty());
  s.state.on_scatter(scatter.call, copy_reply{codes({errc::ok, errc::corrupt}), {}}, t0);
  s.finished({errc::ok, errc::corrupt, errc::cancelled, errc::cancelled, errc::cancelled});
  const auto bad = s.one<load_invalidate>();
  s.state.on_invalidate(bad.call, finish_reply{same_codes(1)}, t0);
  s.released(s.one<load_release>());
  s.check_quiesced(4);
}

TEST_CASE("load: a fetch that is partly wanted keeps its pin until that part is scattered", "[load_state][cancel]") {
  cancelled_loader s{test_binding(8), test_options(4)};
  REQUIRE(s.state.start(test_task(3), t0));
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>(), t0, {errc::ok, errc::full, errc::ok});
  CHECK(s.state.window_left() == 6); // pages without a frame have left the window
  CHECK(s.end_pins() == 0);
  const auto scatter = s.one<load_scatter>();
  CHECK(scatter.order.items.size() == 2);
  s.scattered(scatter);
  CHECK(s.end_pins() == 1);
  CHECK(s.state.window_left() == 8);
  s.finished({errc::ok, errc::full, errc::ok});
  s.released(s.one<load_release>());
  s.check_quiesced(8);
}

TEST_CASE("load: cancelled while the registry and the copy engine work for it, it sends the registry no more requests",
          "[load_state][cancel]") {
  cancelled_loader s{test_binding(8, 2)};
  s.start(8);
  const auto locates = s.take<load_locate>();
  REQUIRE(locates.size() == 2);
  s.located(locates[0]);
  s.fetched(s.one<load_fetch>());
  const auto scatter = s.one<load_scatter>();
  s.cancel();
  s.state.on_locate(locates[1].call, no_answer(), t0);
  CHECK(s.take<load_locate>().empty());
  s.scattered(scatter);
  const auto done = results_of(s.one<task_finished>().result);
  CHECK(static_cast<std::size_t>(std::count(done.begin(), done.end(), errc::ok)) == scatter.order.items.size());
  CHECK(static_cast<std::size_t>(std::count(done.begin(), done.end(), errc::cancelled)) ==
        locates[1].request.keys.size());
  // Both shards get a release, since the request to the second one may have arrived.
  CHECK(s.effects.left() == 2);
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load: a late cancel or one of an unknown task changes nothing", "[load_state][cancel]") {
  cancelled_loader s;
  s.cancel();
  s.start(1);
  s.state.cancel(std::vector<std::uint64_t>{0, 4, 6}, t0);
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>());
  const auto scatter = s.one<load_scatter>();
  s.cancel();
  s.cancel();
  s.scattered(scatter);
  s.finished({errc::ok});
  s.cancel();
  s.released(s.one<load_release>());
  s.cancel();
  s.check_quiesced(8);
}

TEST_CASE("load: blocks being filled at the cancel outlive the node", "[load_state][cancel]") {
  cancelled_loader s{test_binding(1)};
  s.start(2);
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>());
  const auto scatter = s.one<load_scatter>();
  s.cancel();
  s.state.unbind(errc::unreachable);
  s.cancel();
  CHECK(s.take<task_finished>().empty());
  s.scattered(scatter);
  s.finished({errc::ok, errc::cancelled});
  s.check_quiesced(0);
}

} // namespace transfer_load_cancel_test
