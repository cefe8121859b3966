#include "tests/unit/transfer_saver.hpp"

#include <algorithm>
#include <set>

namespace transfer_save_state_test {

namespace {

using namespace troupe;
using namespace troupe::transfer;
using namespace troupe::test;

} // namespace

TEST_CASE("save: reserve, gather, write, commit, and only then saved", "[save_state]") {
  saver s;
  const auto work = test_task(3);
  const auto id = s.state.start(work, t0);
  REQUIRE(id);
  CHECK(s.state.next_deadline() == t0 + work.deadline);

  const auto reserve = s.one<save_reserve>();
  CHECK(reserve.request.space == test_space);
  CHECK(reserve.request.rank == 3);
  CHECK(reserve.request.ticket.owner == 77);
  CHECK(reserve.request.keys == work.keys);
  CHECK(reserve.request.parents.items == std::vector<key_digest>{work.parent, work.keys[0], work.keys[1]});
  CHECK(reserve.request.expires_in >= work.deadline);
  s.grant(reserve, t0 + 3 * ms);

  const auto gather = s.one<save_gather>();
  CHECK(gather.order.segment == 9);
  std::set<std::uint64_t> buffers;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto& x = gather.order.items[i];
    CHECK(x.key == work.keys[i]);
    CHECK(x.block == work.blocks[i]);
    CHECK(x.where == slot_ref{i, 7});
    CHECK(x.buffer_offset >= 3 * test_slot_bytes);
    CHECK(x.buffer_offset < 11 * test_slot_bytes);
    CHECK(x.buffer_offset % test_slot_bytes == 0);
    buffers.insert(x.buffer_offset);
  }
  CHECK(buffers.size() == 3);
  CHECK(s.state.free_buffers() == 5);
  s.gathered(gather, t0 + 7 * ms);

  const auto write = s.one<save_write>();
  CHECK(write.batch.segment == 9);
  CHECK(write.batch.deadline == work.deadline - 7 * ms);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(write.batch.items[i] == io_item{{i, 7}, gather.order.items[i].buffer_offset, test_slot_bytes});
  CHECK(s.take<save_commit>().empty());
  CHECK(s.state.free_buffers() == 5);
  s.written(write, t0 + 12 * ms);
  CHECK(s.state.free_buffers() == 8);

  const auto commit = s.one<save_commit>();
  CHECK(commit.request.ticket == reserve.request.ticket);
  CHECK(commit.request.pages.size() == 3);
  CHECK(commit.request.pages[2] == page_ref{work.keys[2], {2, 7}});
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
  s.check_at_rest(8);
}

TEST_CASE("save: what is stored, being written or without a slot needs no write", "[save_state]") {
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
  s.written(s.one<save_write>());
  s.committed(s.one<save_commit>());
  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::exists, errc::busy, errc::ok, errc::full});
  CHECK(done.result.bytes == test_page_bytes);
  CHECK(s.take<save_abort>().empty());
  s.check_at_rest(8);
}

TEST_CASE("save: a task without blocks is answered at once", "[save_state]") {
  saver s;
  for (int i = 0; i < 3; ++i) {
    const auto id = s.state.start(test_task(0), t0);
    REQUIRE(id);
    const auto done = s.one<task_finished>();
    CHECK(done.task == *id);
    CHECK(done.result.results.empty());
    s.check_at_rest(8);
  }
}

TEST_CASE("save: what cannot be a task is refused, and says why", "[save_state]") {
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
  for (const auto& x : s.take<save_write>())
    s.written(x);
  std::size_t pages = 0;
  for (const auto& x : s.take<save_commit>()) {
    for (const auto& page : x.request.pages)
      CHECK(shard_of(page.key, shards) == x.shard);
    pages += x.request.pages.size();
    s.committed(x);
  }
  CHECK(pages == work.keys.size());
  CHECK(s.one<task_finished>().result.bytes == work.keys.size() * test_page_bytes);
  s.check_at_rest(64);
}

TEST_CASE("save: shards answer in any order, pages are written in prefix order", "[save_state]") {
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
    s.written(s.one<save_write>());
  }
  REQUIRE(order.size() == work.keys.size());
  // The first went out before the other shards had answered; the rest is in order.
  std::vector<std::size_t> positions;
  for (const auto& k : order)
    positions.push_back(static_cast<std::size_t>(std::find(work.keys.begin(), work.keys.end(), k) - work.keys.begin()));
  CHECK(std::is_sorted(positions.begin() + 1, positions.end()));
}

TEST_CASE("save: more pages than buffers, in batches, never more than there are", "[save_state]") {
  constexpr std::uint32_t buffers = 3;
  saver s{test_binding(buffers), test_options(2)};
  REQUIRE(s.state.start(test_task(11), t0));
  s.grant(s.one<save_reserve>());
  std::set<std::uint64_t> in_use;
  std::vector<save_write> writing;
  std::size_t committed = 0;
  auto now = t0;
  for (int round = 0; round < 100 && s.state.open_tasks() > 0; ++round) {
    for (const auto& x : s.take<save_gather>()) {
      CHECK(x.order.items.size() <= 2);
      for (const auto& item : x.order.items)
        CHECK(in_use.insert(item.buffer_offset).second);
      s.gathered(x, now);
    }
    CHECK(in_use.size() + s.state.free_buffers() == buffers);
    for (auto& x : s.take<save_write>())
      writing.push_back(std::move(x));
    REQUIRE_FALSE(writing.empty());
    now += 1 * ms;
    const auto ended = writing.back();
    writing.pop_back();
    for (const auto& item : ended.batch.items)
      in_use.erase(item.buffer_offset);
    s.written(ended, now);
    for (const auto& x : s.take<save_commit>()) {
      committed += x.request.pages.size();
      s.committed(x, now);
    }
  }
  CHECK(committed == 11);
  const auto done = s.one<task_finished>();
  CHECK(done.result.timing.buffer_wait > duration::zero());
  s.check_at_rest(buffers);
}

TEST_CASE("save: tasks share the buffers in order of arrival", "[save_state]") {
  saver s{test_binding(4), test_options(2)};
  REQUIRE(s.state.start(test_task(3, 0), t0));
  REQUIRE(s.state.start(test_task(3, 100), t0));
  REQUIRE(s.state.start(test_task(1, 200), t0));
  const auto reserves = s.take<save_reserve>();
  REQUIRE(reserves.size() == 3);
  CHECK(reserves[0].request.ticket != reserves[1].request.ticket);
  for (auto i = reserves.rbegin(); i != reserves.rend(); ++i)
    s.grant(*i);
  // The last task was granted first and has its buffer; the others come in order of arrival as buffers come free.
  std::vector<key_digest> order;
  for (int round = 0; round < 20; ++round)
    for (const auto& x : s.take<save_gather>()) {
      for (const auto& item : x.order.items)
        order.push_back(item.key);
      s.gathered(x);
      for (const auto& w : s.take<save_write>())
        s.written(w);
      for (const auto& c : s.take<save_commit>())
        s.committed(c);
    }
  CHECK(order == std::vector{key(200), key(100), key(101), key(102), key(0), key(1), key(2)});
  CHECK(s.take<task_finished>().size() == 3);
  s.check_at_rest(4);
}

TEST_CASE("save: a page that cannot be gathered or written gives its slot back and fails alone", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(4), t0));
  s.grant(s.one<save_reserve>());
  const auto gather = s.one<save_gather>();
  s.state.on_gather(gather.call, copy_reply{codes({errc::ok, errc::out_of_range, errc::ok, errc::ok}), {}}, t0);
  CHECK(s.state.free_buffers() == 5);
  const auto first_abort = s.one<save_abort>();
  REQUIRE(first_abort.request.pages.size() == 1);
  CHECK(first_abort.request.pages[0] == page_ref{key(1), {1, 7}});

  const auto write = s.one<save_write>();
  REQUIRE(write.batch.items.size() == 3);
  s.state.on_write(write.call, io_reply{codes({errc::no_space, errc::ok, errc::timeout})}, t0);
  CHECK(s.state.free_buffers() == 8);
  const auto second_abort = s.one<save_abort>();
  CHECK(second_abort.request.pages.items == std::vector<page_ref>{{key(0), {0, 7}}, {key(3), {3, 7}}});
  const auto commit = s.one<save_commit>();
  CHECK(commit.request.pages.items == std::vector<page_ref>{{key(2), {2, 7}}});
  s.committed(commit);

  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::no_space, errc::out_of_range, errc::ok, errc::timeout});
  CHECK(done.result.bytes == test_page_bytes);
  // Answered, although the aborts are under way; whatever comes of them.
  CHECK(s.state.calls_under_way() == 2);
  s.state.on_abort(first_abort.call, no_answer(), t0);
  s.aborted(second_abort);
  s.check_at_rest(8);
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
    s.state.on_gather(s.one<save_gather>().call, fail(errc::expired, "another segment"), t0);
    CHECK(s.take<save_write>().empty());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::expired));
    s.aborted(s.one<save_abort>());
  }
  SECTION("by the io worker") {
    s.grant(s.one<save_reserve>());
    s.gathered(s.one<save_gather>());
    s.state.on_write(s.one<save_write>().call, fail(errc::shutting_down, "draining"), t0);
    CHECK(s.take<save_commit>().empty());
    CHECK(results_of(s.one<task_finished>().result) == std::vector(2, errc::shutting_down));
    s.aborted(s.one<save_abort>());
  }
  SECTION("by the registry, at the commit") {
    s.grant(s.one<save_reserve>());
    s.gathered(s.one<save_gather>());
    s.written(s.one<save_write>());
    s.state.on_commit(s.one<save_commit>().call, fail(errc::unreachable, "gone"), t0);
    const auto done = s.one<task_finished>();
    CHECK(results_of(done.result) == std::vector(2, errc::unreachable));
    CHECK(done.result.bytes == 0);
  }
  s.check_at_rest(8);
}

TEST_CASE("save: what the node has no room for is written when there may be some", "[save_state]") {
  saver s(test_binding(8), test_options(2));
  REQUIRE(s.state.start(test_task(4), t0));
  s.grant(s.one<save_reserve>());
  const auto gathers = s.take<save_gather>();
  REQUIRE(gathers.size() == 2);
  for (const auto& x : gathers)
    s.gathered(x);
  const auto writes = s.take<save_write>();
  REQUIRE(writes.size() == 2);
  s.state.on_write(writes[1].call, fail(errc::limit_exceeded, "4096 pages are under way"), t0);
  CHECK(s.take<save_gather>().empty());
  CHECK(s.take<save_abort>().empty()); // its slots are kept
  CHECK(s.state.free_buffers() == 6);
  s.written(writes[0]);
  const auto again = s.one<save_gather>();
  CHECK(again.order.items[0].where == slot_ref{2, 7});
  CHECK(again.order.items[1].where == slot_ref{3, 7});
  SECTION("in time") {
    s.gathered(again);
    s.written(s.one<save_write>());
    for (const auto& x : s.take<save_commit>())
      s.committed(x);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(4, errc::ok));
  }
  SECTION("or given up at the deadline, with its slots") {
    s.gathered(again);
    const auto late = t0 + std::chrono::seconds(1);
    s.state.on_write(s.one<save_write>().call, fail(errc::limit_exceeded, "4096 pages are under way"), late);
    s.committed(s.one<save_commit>());
    const auto abort = s.one<save_abort>();
    CHECK(abort.request.pages.size() == 2);
    s.aborted(abort);
    CHECK(results_of(s.one<task_finished>().result) ==
          std::vector{errc::ok, errc::ok, errc::limit_exceeded, errc::limit_exceeded});
  }
  s.check_at_rest(8);
}

TEST_CASE("save: a page is saved only if the commit says so, page by page", "[save_state]") {
  saver s;
  REQUIRE(s.state.start(test_task(3), t0));
  s.grant(s.one<save_reserve>());
  s.gathered(s.one<save_gather>());
  s.written(s.one<save_write>());
  s.state.on_commit(s.one<save_commit>().call, finish_reply{codes({errc::ok, errc::expired, errc::stale})}, t0);
  const auto done = s.one<task_finished>();
  CHECK(results_of(done.result) == std::vector{errc::ok, errc::expired, errc::stale});
  CHECK(done.result.bytes == test_page_bytes);
  s.check_at_rest(8);
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
    s.written(s.one<save_write>());
    s.committed(s.one<save_commit>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::internal, errc::internal});
  }
  SECTION("gather") {
    s.grant(reserve);
    s.state.on_gather(s.one<save_gather>().call, copy_reply{{std::vector<std::uint8_t>{0, 255}}, {}}, t0);
    s.written(s.one<save_write>());
    s.committed(s.one<save_commit>());
    s.aborted(s.one<save_abort>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::internal, errc::internal});
  }
  SECTION("write") {
    s.grant(reserve);
    s.gathered(s.one<save_gather>());
    s.state.on_write(s.one<save_write>().call, io_reply{std::vector<std::uint8_t>{0, errc_count}}, t0);
    s.committed(s.one<save_commit>());
    s.aborted(s.one<save_abort>());
    CHECK(results_of(s.one<task_finished>().result) == std::vector{errc::ok, errc::internal, errc::internal});
  }
  SECTION("commit") {
    s.grant(reserve);
    s.gathered(s.one<save_gather>());
    s.written(s.one<save_write>());
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
    s.state.on_write(s.one<save_write>().call, io_reply{same_codes(100)}, t0);
    s.state.on_commit(s.one<save_commit>().call, finish_reply{same_codes(100)}, t0);
    CHECK(results_of(s.one<task_finished>().result) == std::vector(3, errc::ok));
  }
  s.check_at_rest(8);
}

TEST_CASE("save: a copy engine that lies about its time cannot overflow the sums", "[save_state]") {
  saver s{test_binding(), test_options(1)};
  REQUIRE(s.state.start(test_task(3), t0));
  s.grant(s.one<save_reserve>());
  for (const auto& x : s.take<save_gather>())
    s.state.on_gather(x.call, copy_reply{same_codes(1), duration::max()}, t0 + 2 * ms);
  for (const auto& x : s.take<save_write>())
    s.written(x);
  for (const auto& x : s.take<save_commit>())
    s.committed(x);
  const auto done = s.one<task_finished>();
  CHECK(done.result.timing.move == 6 * ms);
}

} // namespace transfer_save_state_test
