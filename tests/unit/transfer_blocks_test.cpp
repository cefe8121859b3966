#include "tests/unit/transfer_loader.hpp"
#include "tests/unit/transfer_saver.hpp"

namespace transfer_blocks_test {

/// Pages that are made of several of the engine's blocks, and events that the copy engine is to wait for.

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

coordinator_options with_blocks(std::uint32_t blocks_per_page, std::uint32_t batch_pages = 2) {
  auto out = test_options(batch_pages);
  out.blocks_per_page = blocks_per_page;
  return out;
}

/// Blocks 10, 11, 12, … , as many for each key.
transfer_task with_blocks(transfer_task work, std::uint32_t blocks_per_page) {
  work.blocks.items.clear();
  for (std::uint32_t i = 0; i < work.keys.size() * blocks_per_page; ++i)
    work.blocks.items.push_back(10 + i);
  return work;
}

std::vector<std::uint32_t> blocks_of(const copy_order& order) {
  std::vector<std::uint32_t> out;
  for (const auto& item : order.items)
    out.push_back(item.block);
  return out;
}

} // namespace

TEST_CASE("save: a page of several blocks is gathered from all of them", "[save_state]") {
  saver s{test_binding(), with_blocks(3)};
  s.places_at_once = false;
  auto work = with_blocks(test_task(3), 3);
  work.ready_event = 99;
  REQUIRE(s.state.start(work, t0));
  s.grant(s.one<save_reserve>());
  const auto places = s.take<save_place>();
  REQUIRE(places.size() == 2);
  s.placed(places[0]);
  const auto first = s.one<save_gather>();
  CHECK(blocks_of(first.order) == std::vector<std::uint32_t>{10, 13});
  CHECK(first.order.further_blocks.items == std::vector<std::uint32_t>{11, 12, 14, 15});
  CHECK(first.order.ready_event == 99);
  // Pages that had no frames at first are gathered from their own blocks.
  s.state.on_place(places[1].call, fail(errc::limit_exceeded, "busy"), t0);
  s.state.on_tick(t0);
  s.gathered(first);
  s.filled(s.one<save_fill>());
  s.placed(s.one<save_place>());
  const auto second = s.one<save_gather>();
  CHECK(blocks_of(second.order) == std::vector<std::uint32_t>{16});
  CHECK(second.order.further_blocks.items == std::vector<std::uint32_t>{17, 18});
  CHECK(second.order.ready_event == 99);
  s.gathered(second);
  s.filled(s.one<save_fill>());
  for (const auto& x : s.take<save_commit>())
    s.committed(x);
  CHECK(results_of(s.one<task_finished>().result) == std::vector(3, errc::ok));
  s.check_quiesced(8);
}

TEST_CASE("load: a page of several blocks is scattered into all of them, including missing ones", "[load_state]") {
  loader s{test_binding(), with_blocks(2)};
  auto work = with_blocks(test_task(2), 2);
  work.blocks[0] = null_block;
  work.blocks[3] = null_block;
  work.ready_event = 7;
  REQUIRE(s.state.start(work, t0));
  s.located(s.one<load_locate>());
  s.fetched(s.one<load_fetch>());
  const auto scatter = s.one<load_scatter>();
  CHECK(blocks_of(scatter.order) == std::vector<std::uint32_t>{null_block, 12});
  CHECK(scatter.order.further_blocks.items == std::vector<std::uint32_t>{11, null_block});
  CHECK(scatter.order.ready_event == 7);
  s.scattered(scatter);
  CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::ok));
  s.release_all();
  s.check_quiesced(8);
}

TEST_CASE("save: with one block per page an order has no extra data", "[save_state]") {
  const auto blocks_per_page = GENERATE(0U, 1U); // 0 makes no sense
  saver s{test_binding(), with_blocks(blocks_per_page)};
  REQUIRE(s.state.start(test_task(2), t0));
  s.grant(s.one<save_reserve>());
  const auto gather = s.one<save_gather>();
  CHECK(blocks_of(gather.order) == std::vector<std::uint32_t>{100, 101});
  CHECK(gather.order.further_blocks.empty());
  CHECK(gather.order.ready_event == 0);
}

TEST_CASE("transfer: a task with a wrong number of blocks is refused", "[save_state][load_state]") {
  saver save{test_binding(), with_blocks(3)};
  loader load{test_binding(), with_blocks(3)};
  const auto refused = [&](const transfer_task& work) {
    for (const auto& got : {save.state.start(work, t0), load.state.start(work, t0)}) {
      REQUIRE_FALSE(got);
      CHECK(got.error().code == errc::invalid_argument);
      CHECK(got.error().text.find("3 per key") != std::string::npos);
    }
  };
  refused(test_task(2));
  refused(with_blocks(test_task(2), 2));
  refused(with_blocks(test_task(2), 4));
  auto cut = with_blocks(test_task(2), 3);
  cut.blocks.items.pop_back();
  refused(cut);
  auto keyless = with_blocks(test_task(1), 3);
  keyless.keys.items.clear();
  refused(keyless);
  CHECK(save.effects.left() == 0);
  CHECK(load.effects.left() == 0);
  CHECK(save.state.start(test_task(0), t0));
}

TEST_CASE("transfer: a refusal by the copy engine applies to all blocks of the order", "[save_state][load_state]") {
  const auto code = GENERATE(errc::unsupported, errc::invalid_argument);
  auto work = test_task(2);
  work.ready_event = 3;
  saver save;
  REQUIRE(save.state.start(work, t0));
  save.grant(save.one<save_reserve>());
  save.state.on_gather(save.one<save_gather>().call, fail(code, "?"), t0);
  save.gives_back({code, code});
  CHECK(results_of(save.one<task_finished>().result) == std::vector(2, code));
  save.aborted(save.one<save_abort>());
  save.check_quiesced(8);

  loader load;
  REQUIRE(load.state.start(work, t0));
  load.located(load.one<load_locate>());
  load.fetched(load.one<load_fetch>());
  load.state.on_scatter(load.one<load_scatter>().call, fail(code, "?"), t0);
  CHECK(results_of(load.one<task_finished>().result) == std::vector(2, code));
  CHECK(load.take<load_invalidate>().empty()); // the pages are as good as before
  load.release_all();
  load.check_quiesced(8);
}

} // namespace transfer_blocks_test
