#include "tests/unit/transfer_loader.hpp"

namespace transfer_load_bad_pages_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

} // namespace

TEST_CASE("load: the source of a bad page is reported with it", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(3), t0));
  s.located(s.one<load_locate>());
  const auto fetch = s.one<load_fetch>();
  auto frames = s.worker.give(3);
  frames.frames[1].promoted = 1;
  s.state.on_fetch(fetch.call, frames, t0);
  s.state.on_scatter(s.one<load_scatter>().call, copy_reply{codes({errc::corrupt, errc::corrupt, errc::ok}), {}}, t0);
  const auto notified = s.one<load_invalidate>();
  CHECK(notified.request.pages.size() == 2);
  CHECK(notified.request.tier(0) == page_tier::memory);
  CHECK(notified.request.tier(1) == page_tier::disk);
  s.state.on_invalidate(notified.call, finish_reply{same_codes(2)}, t0);
  CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::corrupt, errc::corrupt, errc::ok});
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("load: a bad page is unpublished, wherever it was detected", "[load_state]") {
  loader s;
  REQUIRE(s.state.start(test_task(6), t0));
  s.located(s.one<load_locate>());
  const auto fetch = s.one<load_fetch>();
  s.fetched(fetch, t0, {errc::ok, errc::io_error, errc::stale, errc::slab_damaged, errc::timeout, errc::ok});
  CHECK(s.state.window_left() == 6);
  const auto after_fetch = s.one<load_invalidate>();
  CHECK(after_fetch.request.ns == test_namespace);
  CHECK(after_fetch.request.rank == 3);
  CHECK(after_fetch.request.pages.items == std::vector<page_ref>{{key(1), {1, 7}}, {key(3), {3, 7}}});
  CHECK(after_fetch.request.tier(0) == page_tier::disk);
  CHECK(after_fetch.request.tier(1) == page_tier::disk);

  const auto scatter = s.one<load_scatter>();
  REQUIRE(scatter.order.items.size() == 2);
  s.state.on_scatter(scatter.call, copy_reply{codes({errc::corrupt, errc::identity_mismatch}), {}}, t0);
  const auto after_scatter = s.one<load_invalidate>();
  CHECK(after_scatter.request.pages.items == std::vector<page_ref>{{key(0), {0, 7}}, {key(5), {5, 7}}});
  CHECK(after_scatter.request.tier(0) == page_tier::memory);
  CHECK(after_scatter.request.tier(1) == page_tier::memory);

  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::corrupt, errc::io_error, errc::stale, errc::slab_damaged,
                                               errc::timeout, errc::identity_mismatch});
  CHECK(done.result.bytes == 0);
  // The lease is released after the registry has processed the bad pages, so that they are not evicted meanwhile.
  CHECK(s.take<load_release>().empty());
  s.state.on_invalidate(after_fetch.call, finish_reply{same_codes(2)}, t0);
  CHECK(s.take<load_release>().empty());
  s.state.on_invalidate(after_scatter.call, no_answer(), t0);
  s.released(s.one<load_release>());
  s.check_quiesced(8);
}

} // namespace transfer_load_bad_pages_test
