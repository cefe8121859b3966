#include "tests/catch.hpp"
#include "tests/unit/transfer_loader.hpp"
#include "tests/unit/transfer_saver.hpp"

namespace transfer_one_order_test {

/// Coordinators whose caller needs one answer for all pages of a task.

using namespace troupe;
using namespace troupe::test;
using namespace troupe::transfer;

namespace {

coordinator_options one_order() {
  auto out = test_options(2);
  out.one_order = true;
  return out;
}

coordinator_options all_or_none() {
  auto out = test_options();
  out.all_or_none = true;
  return out;
}

} // namespace

TEST_CASE(
    "transfer one order: a save in one order waits for all slots and is answered when no part of it is in progress",
    "[transfer]") {
  saver x(test_binding(8, 2), one_order());
  REQUIRE(x.state.start(tagged(5, test_task(6)), t0));
  const auto asked = x.take<save_reserve>();
  REQUIRE(asked.size() == 2);
  x.grant(asked[0]);
  CHECK(x.take<save_gather>().empty());
  x.grant(asked[1], t0, 100);
  const auto order = x.one<save_gather>();
  CHECK(order.order.items.size() == 6);

  const std::vector<std::uint64_t> tags{5};
  x.state.cancel(tags, t0);
  CHECK(x.take<task_finished>().empty());
  x.gathered(order);
  x.filled(x.one<save_fill>());
  CHECK(x.take<save_commit>().empty());
  auto aborts = x.take<save_abort>();
  REQUIRE_FALSE(aborts.empty());
  CHECK(x.take<task_finished>().empty());
  for (const auto& abort : aborts)
    x.aborted(abort);
  CHECK(results_of(x.one<task_finished>().result) == std::vector<errc>(6, errc::cancelled));
  x.check_quiesced(8);
}

TEST_CASE("transfer one order: a save in one order leaves out pages without a slot or a frame", "[transfer]") {
  saver x(test_binding(8, 1), one_order());
  x.places_at_once = false;
  REQUIRE(x.state.start(test_task(4), t0));
  const auto asked = x.one<save_reserve>();
  auto slots = locations(asked.request.keys);
  slots[1].status = static_cast<std::uint32_t>(errc::exists);
  x.state.on_reserve(asked.call, reserve_reply{slots}, t0);
  x.placed(x.one<save_place>(), t0, {errc::ok, errc::full, errc::ok});
  const auto order = x.one<save_gather>();
  CHECK(order.order.items.size() == 2);
  for (const auto& abort : x.take<save_abort>())
    x.aborted(abort);
  x.gathered(order);
  x.filled(x.one<save_fill>());
  x.committed(x.one<save_commit>());
  CHECK(results_of(x.one<task_finished>().result) == std::vector<errc>{errc::ok, errc::exists, errc::full, errc::ok});
  x.check_quiesced(8);
}

TEST_CASE("transfer one order: a request for frames waits no longer than its limit", "[transfer]") {
  auto how = one_order();
  how.frame_patience = 40 * ms;
  saver x(test_binding(8, 1), how);
  x.places_at_once = false;
  REQUIRE(x.state.start(test_task(2), t0));
  x.grant(x.one<save_reserve>());
  CHECK(x.one<save_place>().request.patience == 40 * ms);
}

TEST_CASE("transfer one order: a save in one order stops waiting for a node without room at its limit", "[transfer]") {
  auto how = one_order();
  how.frame_patience = 40 * ms;
  saver x(test_binding(8, 1), how);
  x.places_at_once = false;
  REQUIRE(x.state.start(test_task(2), t0));
  x.grant(x.one<save_reserve>());
  auto call = x.one<save_place>().call;
  timestamp now = t0;
  for (; now < t0 + 40 * ms; now += 20 * ms) {
    x.state.on_place(call, fail(errc::limit_exceeded, "busy"), now);
    x.state.on_tick(now);
    call = x.one<save_place>().call;
  }
  x.state.on_place(call, fail(errc::limit_exceeded, "busy"), now);
  x.state.on_tick(now);
  CHECK(x.take<save_place>().empty());
  x.aborted(x.one<save_abort>());
  CHECK(results_of(x.one<task_finished>().result) == std::vector<errc>(2, errc::limit_exceeded));
  x.check_quiesced(8);
}

TEST_CASE("transfer one order: a cancelled save publishes what was gathered unless its caller wants it dropped",
          "[transfer]") {
  const bool drops = GENERATE(false, true);
  auto how = test_options();
  how.cancels_gathered = drops;
  saver x(test_binding(8, 1), how);
  REQUIRE(x.state.start(tagged(5, test_task(2)), t0));
  x.grant(x.one<save_reserve>());
  x.gathered(x.one<save_gather>());
  const auto fill = x.one<save_fill>();
  const std::vector<std::uint64_t> tags{5};
  x.state.cancel(tags, t0);
  x.filled(fill);
  CHECK(x.take<save_commit>().size() == (drops ? 0 : 1));
  CHECK(x.take<save_abort>().size() == (drops ? 1 : 0));
}

TEST_CASE("transfer one order: an all-or-nothing load moves nothing where a page is missing", "[transfer]") {
  loader x(test_binding(8, 2), all_or_none());
  REQUIRE(x.state.start(test_task(6), t0));
  const auto asked = x.take<load_locate>();
  REQUIRE(asked.size() == 2);
  x.located(asked[0]);
  CHECK(x.take<load_fetch>().empty());
  auto places = locations(asked[1].request.keys, 100);
  places[0].status = static_cast<std::uint32_t>(errc::not_found);
  x.state.on_locate(asked[1].call, locate_reply{places}, t0);
  CHECK(x.take<load_fetch>().empty());
  const auto results = results_of(x.one<task_finished>().result);
  CHECK(std::ranges::count(results, errc::not_found) == 1);
  CHECK(std::ranges::count(results, errc::cancelled) == 5);
  x.release_all();
  CHECK(x.state.calls_under_way() == 0);
}

TEST_CASE("transfer one order: an all-or-nothing load is answered when its damaged page is unpublished", "[transfer]") {
  loader x(test_binding(8, 1), all_or_none());
  REQUIRE(x.state.start(test_task(2), t0));
  x.located(x.one<load_locate>());
  x.fetched(x.one<load_fetch>());
  const auto order = x.one<load_scatter>();
  x.state.on_scatter(order.call, copy_reply{codes({errc::ok, errc::corrupt}), 2 * ms}, t0);
  CHECK(x.take<task_finished>().empty());
  const auto said = x.one<load_invalidate>();
  x.state.on_invalidate(said.call, finish_reply{same_codes(1)}, t0);
  CHECK(results_of(x.one<task_finished>().result) == std::vector<errc>{errc::ok, errc::corrupt});
  x.release_all();
  CHECK(x.state.calls_under_way() == 0);
}

} // namespace transfer_one_order_test
