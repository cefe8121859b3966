#include "connector/load_marks.hpp"
#include "connector/worker/worker_state.hpp"
#include "tests/catch.hpp"
#include "tests/unit/connector_support.hpp"

#include <algorithm>
#include <map>

/// Hazards are named as in connector_hazards_test.cpp.

namespace troupe::test::connector_worker_test {

namespace {

using namespace connector;

key_digest key_number(std::uint64_t n) {
  return {1, n};
}

std::vector<key_digest> keys_from(std::uint64_t first, std::uint32_t count) {
  std::vector<key_digest> out;
  for (std::uint32_t i = 0; i < count; ++i)
    out.push_back(key_number(first + i));
  return out;
}

load_op make_load(session_id session, std::string request, std::uint32_t count, block_id first_block) {
  return {session, std::move(request), keys_from(session * 100, count), blocks_from(first_block, count)};
}

store_op make_store(store_id id, session_id session, std::string request, std::uint32_t count, block_id first_block) {
  return {id, session, std::move(request), 0, {}, keys_from(session * 100, count), blocks_from(first_block, count)};
}

/// A worker half, with a person in the place of coordinators and engine.
class worker_harness {
public:
  explicit worker_harness(const worker_options& options = {}, bool attached = true) : state(options, attached) {}

  void bind(connector_metadata meta) { state.bind(std::move(meta)); }

  void step(connector_metadata meta) {
    state.handle_preemptions(meta.preempted, now);
    collect();
    state.bind(std::move(meta));
    state.start_load_kv(now);
    collect();
    state.wait_for_save(now);
    collect();
  }

  finished_requests finished() { return state.get_finished(); }

  /// All blocks of a task have the same result.
  void end(task_tag tag, errc code) { end(tag, std::vector<errc>(tasks.at(tag).keys.size(), code)); }

  void end(task_tag tag, const std::vector<errc>& codes) {
    transfer_result done;
    for (const auto x : codes)
      done.results.items.push_back(static_cast<std::uint8_t>(x));
    done.bytes = 100 * static_cast<std::uint64_t>(std::ranges::count(codes, errc::ok));
    tasks.erase(tag);
    state.on_task(tag, done, now);
    collect();
  }

  void fail_task(task_tag tag, errc why) {
    tasks.erase(tag);
    state.on_task(tag, fail(why, "as the test wants it"), now);
    collect();
  }

  void cancelled() {
    state.on_cancelled(now);
    collect();
  }

  void collect() {
    for (auto& x : state.take_outbox()) {
      if (auto* load = std::get_if<submit_load>(&x)) {
        loads.push_back(load->tag);
        tasks.emplace(load->tag, std::move(load->work));
      } else if (auto* save = std::get_if<submit_save>(&x)) {
        saves.push_back(save->tag);
        tasks.emplace(save->tag, std::move(save->work));
      } else {
        cancels.push_back(std::get<cancel_saves>(x).tags);
      }
    }
  }

  worker_state state;
  timestamp now = start_time;
  std::vector<task_tag> loads;
  std::vector<task_tag> saves;
  std::map<task_tag, transfer_task> tasks;
  std::vector<std::vector<task_tag>> cancels;
};

using names = std::vector<std::string>;

} // namespace

TEST_CASE("connector worker: a load and a store pass through a worker", "[connector]") {
  worker_harness harness;
  auto store = make_store(1, 8, "b", 2, 20);
  store.first_page = 3;
  store.parent = key_number(799);
  harness.step({.loads = {make_load(7, "a", 3, 10)}, .stores = {store}, .preempted = {}, .finished = {}});
  REQUIRE(harness.loads.size() == 1);
  REQUIRE(harness.saves.size() == 1);
  const auto& load = harness.tasks.at(harness.loads[0]);
  CHECK(load.keys.items == keys_from(700, 3));
  CHECK(load.blocks.items == blocks_from(10, 3));
  CHECK(load.tag == harness.loads[0]);
  CHECK(load.deadline == std::chrono::seconds(30));
  CHECK(harness.tasks.at(harness.saves[0]).parent == key_number(799));
  CHECK(harness.finished().received.empty());

  harness.now += std::chrono::milliseconds(5);
  harness.end(harness.loads[0], errc::ok);
  harness.end(harness.saves[0], {errc::ok, errc::exists});
  const auto done = harness.finished();
  CHECK(done.received == names{"a"});
  CHECK(done.sent.empty()); // it has not finished
  CHECK(harness.state.take_load_errors().empty());
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{1, {1, 1}}});
  CHECK(harness.finished().received.empty());
  const auto stats = harness.state.take_stats();
  CHECK(stats.num_transfer_task == 2);
  CHECK(stats.load_duration == std::vector<double>{0.005});
  CHECK(stats.hit_tokens == 48);
  CHECK(stats.loaded_bytes == 300);
  CHECK(stats.saved_bytes == 100);
  CHECK(stats.skipped_pages == 1);
  CHECK(harness.state.take_stats().is_empty());
}

TEST_CASE("connector worker: pages that are not saved because of a damaged slab are counted", "[connector]") {
  worker_harness harness;
  harness.step({.loads = {}, .stores = {make_store(1, 8, "b", 3, 20)}, .preempted = {}, .finished = {}});
  harness.end(harness.saves.at(0), {errc::slab_damaged, errc::ok, errc::slab_damaged});
  const auto stats = harness.state.take_stats();
  CHECK(stats.refused_pages == 2);
  CHECK(stats.num_failed_save == 1);
  CHECK(stats.skipped_pages == 0);
}

TEST_CASE("C-1: a failed load is reported with its blocks in the same pass as its request", "[connector][hazards]") {
  worker_harness harness;
  harness.step(
      {.loads = {make_load(7, "a", 3, 10), make_load(8, "b", 2, 20)}, .stores = {}, .preempted = {}, .finished = {}});
  harness.end(harness.loads[0], {errc::ok, errc::corrupt, errc::not_found});
  harness.fail_task(harness.loads[1], errc::unreachable);
  CHECK(harness.finished().received == names{"a", "b"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{11, 12, 20, 21});
  CHECK(harness.state.take_load_errors().empty());
  CHECK(harness.state.take_stats().num_failed_load == 2);
}

TEST_CASE("C-1: the errors of a load are reported with its last task, and only then", "[connector][hazards]") {
  worker_options options;
  options.task_keys_max = 2;
  worker_harness harness(options);
  harness.step({.loads = {make_load(7, "a", 5, 10)}, .stores = {}, .preempted = {}, .finished = {}});
  REQUIRE(harness.loads.size() == 3);
  harness.end(harness.loads[0], {errc::ok, errc::timeout});
  CHECK(harness.finished().received.empty());
  CHECK(harness.state.take_load_errors().empty());
  harness.end(harness.loads[2], errc::ok);
  harness.end(harness.loads[1], errc::ok);
  CHECK(harness.finished().received == names{"a"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{11});
}

TEST_CASE("connector worker: null blocks are not written and not errors", "[connector]") {
  worker_options options;
  options.blocks_per_page = 2;
  worker_harness harness(options);
  load_op load{7, "a", keys_from(1, 2), {null_block, 11, 12, 13}};
  harness.step({.loads = {load}, .stores = {}, .preempted = {}, .finished = {}});
  harness.end(harness.loads[0], {errc::corrupt, errc::ok});
  harness.finished();
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{11});
  CHECK(harness.state.take_stats().hit_tokens == 32);
}

TEST_CASE("H1 C-7: no block of a preempted request is published once others may write it", "[connector][hazards]") {
  worker_options options;
  options.tasks_max = 1;
  worker_harness harness(options);
  harness.step({.loads = {},
                .stores = {make_store(1, 7, "a", 2, 10), make_store(2, 7, "a", 2, 12), make_store(3, 8, "b", 1, 20)},
                .preempted = {},
                .finished = {}});
  REQUIRE(harness.saves.size() == 1); // the others wait
  harness.step({.loads = {make_load(9, "c", 1, 10)}, .stores = {}, .preempted = {7}, .finished = {}});
  CHECK(harness.cancels == std::vector<std::vector<task_tag>>{{harness.saves[0]}});
  CHECK(harness.state.preempting());
  // The waiting save is cancelled without a message; the load into those blocks waits for the answer.
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{2, {0, 0}}});
  CHECK(harness.loads.empty());
  harness.cancelled();
  CHECK_FALSE(harness.state.preempting());
  CHECK(harness.loads.size() == 1);
  harness.end(harness.saves[0], {errc::ok, errc::cancelled});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{1, {1, 0}}});
  // Those of others go on.
  REQUIRE(harness.saves.size() == 2);
  CHECK(harness.tasks.at(harness.saves[1]).blocks.items == std::vector<std::uint32_t>{20});
}

TEST_CASE("H1: a step without a forward pass cancels the saves of preempted requests too", "[connector][hazards]") {
  worker_harness harness;
  harness.step({.loads = {}, .stores = {make_store(1, 7, "a", 2, 10)}, .preempted = {}, .finished = {}});
  harness.bind({.loads = {make_load(9, "c", 1, 10)}, .stores = {}, .preempted = {7}, .finished = {}});
  harness.state.start_load_kv(harness.now);
  harness.collect();
  CHECK(harness.cancels.size() == 1);
  CHECK(harness.loads.empty());
  harness.cancelled();
  CHECK(harness.loads.size() == 1);
}

TEST_CASE("connector worker: a finished request is reported as sent when its last save has ended", "[connector]") {
  worker_harness harness;
  harness.step({.loads = {},
                .stores = {make_store(1, 7, "a", 1, 10), make_store(2, 7, "a", 1, 11)},
                .preempted = {},
                .finished = {}});
  harness.end(harness.saves[0], errc::ok);
  harness.bind({.loads = {}, .stores = {}, .preempted = {}, .finished = {{7, "a", false}, {8, "b", false}}});
  CHECK(harness.finished().sent == names{"b"}); // b has nothing in progress here
  CHECK(harness.finished().sent.empty());
  harness.end(harness.saves[1], errc::io_error);
  CHECK(harness.finished().sent == names{"a"});
  CHECK(harness.finished().sent.empty());
}

TEST_CASE("H8 C-8: a request that ends during its load is reported as received only", "[connector][hazards]") {
  worker_harness harness;
  harness.step(
      {.loads = {make_load(7, "a", 1, 10), make_load(8, "b", 1, 11)}, .stores = {}, .preempted = {}, .finished = {}});
  harness.end(harness.loads[1], errc::ok);
  CHECK(harness.finished().received == names{"b"});
  // The scheduler did not know yet that b had been loaded.
  harness.bind({.loads = {}, .stores = {}, .preempted = {}, .finished = {{7, "a", true}, {8, "b", true}}});
  auto done = harness.finished();
  CHECK(done.sent.empty());
  CHECK(done.received.empty());
  harness.end(harness.loads[0], errc::ok);
  done = harness.finished();
  CHECK(done.sent.empty());
  CHECK(done.received == names{"a"});
}

TEST_CASE("C-14: at shutdown every waiting task gets a result", "[connector][hazards]") {
  worker_options options;
  options.tasks_max = 1;
  worker_harness harness(options);
  harness.step({.loads = {make_load(7, "a", 1, 10), make_load(8, "b", 1, 11)},
                .stores = {make_store(1, 9, "c", 1, 20)},
                .preempted = {},
                .finished = {}});
  harness.state.close(harness.now);
  harness.collect();
  CHECK(harness.saves.empty());
  CHECK(harness.finished().received == names{"b"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{11});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{1, {0}}});
  CHECK(harness.state.tasks_outstanding() == 1);
  harness.end(harness.loads[0], errc::ok);
  CHECK(harness.finished().received == names{"a"});
  // And nothing new is begun.
  harness.step({.loads = {make_load(10, "d", 1, 30)},
                .stores = {make_store(2, 11, "e", 1, 31)},
                .preempted = {},
                .finished = {}});
  CHECK(harness.loads.size() == 1);
  CHECK(harness.finished().received == names{"d"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{30});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{2, {0}}});
  CHECK(harness.state.tasks_outstanding() == 0);
}

TEST_CASE("C-16: while a load waits, no save begins", "[connector][hazards]") {
  worker_options options;
  options.tasks_max = 2;
  worker_harness harness(options);
  harness.step({.loads = {make_load(1, "a", 1, 1), make_load(2, "b", 1, 2), make_load(3, "c", 1, 3)},
                .stores = {make_store(1, 4, "d", 1, 4)},
                .preempted = {},
                .finished = {}});
  CHECK(harness.loads.size() == 2);
  CHECK(harness.saves.empty());
  harness.end(harness.loads[0], errc::ok);
  CHECK(harness.loads.size() == 3);
  CHECK(harness.saves.size() == 1);
}

TEST_CASE("C-23: an invalid op fails alone", "[connector][hazards]") {
  worker_harness harness;
  auto bad_load = make_load(1, "a", 2, 1);
  bad_load.blocks.pop_back();
  auto bad_store = make_store(1, 2, "b", 2, 5);
  bad_store.blocks.push_back(9);
  harness.step({.loads = {bad_load, make_load(3, "c", 1, 7)},
                .stores = {bad_store, make_store(2, 4, "d", 1, 8), make_store(3, 5, "e", 0, 0)},
                .preempted = {},
                .finished = {}});
  CHECK(harness.loads.size() == 1);
  CHECK(harness.saves.size() == 1);
  CHECK(harness.finished().received == names{"a"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{1});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{1, {0, 0}}, {3, {}}});
}

TEST_CASE("C-24: the failure of any part of a long load fails the load", "[connector][hazards]") {
  worker_options options;
  options.task_keys_max = 128;
  worker_harness harness(options);
  harness.step({.loads = {make_load(7, "a", 300, 1000)}, .stores = {}, .preempted = {}, .finished = {}});
  REQUIRE(harness.loads.size() == 3);
  harness.fail_task(harness.loads[0], errc::io_error);
  harness.end(harness.loads[1], errc::ok);
  harness.end(harness.loads[2], errc::ok);
  CHECK(harness.finished().received == names{"a"});
  CHECK(harness.state.take_load_errors() == blocks_from(1000, 128));
}

TEST_CASE("C-30: each block has its own result", "[connector][hazards]") {
  worker_options options;
  options.task_keys_max = 2;
  worker_harness harness(options);
  harness.step(
      {.loads = {make_load(1, "a", 3, 10)}, .stores = {make_store(5, 2, "b", 3, 20)}, .preempted = {}, .finished = {}});
  // The parts may end in any order.
  harness.end(harness.loads[1], errc::corrupt);
  harness.end(harness.loads[0], {errc::not_found, errc::ok});
  harness.end(harness.saves[1], errc::ok);
  harness.end(harness.saves[0], {errc::full, errc::ok});
  harness.finished();
  auto errors = harness.state.take_load_errors();
  std::ranges::sort(errors);
  CHECK(errors == std::vector<block_id>{10, 12});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{5, {0, 1, 1}}});
}

TEST_CASE("connector worker: each part of a store has the key before it as its parent", "[connector]") {
  worker_options options;
  options.task_keys_max = 2;
  worker_harness harness(options);
  auto store = make_store(1, 7, "a", 5, 10);
  store.parent = key_number(1);
  harness.step({.loads = {}, .stores = {store}, .preempted = {}, .finished = {}});
  REQUIRE(harness.saves.size() == 3);
  CHECK(harness.tasks.at(harness.saves[0]).parent == key_number(1));
  CHECK(harness.tasks.at(harness.saves[1]).parent == store.keys[1]);
  CHECK(harness.tasks.at(harness.saves[2]).parent == store.keys[3]);
}

TEST_CASE("connector worker: of workers with the same KV one saves and all load", "[connector]") {
  worker_options options;
  options.writer = false;
  worker_harness harness(options);
  harness.step({.loads = {make_load(1, "a", 1, 10)},
                .stores = {make_store(1, 2, "b", 1, 20)},
                .preempted = {},
                .finished = {{2, "b", false}}});
  CHECK(harness.saves.empty());
  CHECK(harness.loads.size() == 1);
  CHECK(harness.finished().sent == names{"b"});
  CHECK(harness.state.take_store_outcomes().empty());
}

TEST_CASE("C-9: loads and saves carry the event that they wait for", "[connector][hazards]") {
  worker_harness harness;
  harness.bind(
      {.loads = {make_load(1, "a", 1, 10)}, .stores = {make_store(1, 2, "b", 1, 20)}, .preempted = {}, .finished = {}});
  harness.state.start_load_kv(harness.now, 5);
  harness.state.wait_for_save(harness.now, 6);
  harness.collect();
  CHECK(harness.tasks.at(harness.loads.at(0)).ready_event == 5);
  CHECK(harness.tasks.at(harness.saves.at(0)).ready_event == 6);
}

TEST_CASE("connector worker: an answer that is short or that was not requested is a separate failure", "[connector]") {
  worker_harness harness;
  harness.step({.loads = {make_load(1, "a", 3, 10)}, .stores = {}, .preempted = {}, .finished = {}});
  harness.state.on_task(999, transfer_result{}, harness.now);
  harness.end(harness.loads[0], std::vector<errc>{errc::ok});
  harness.state.on_task(harness.loads[0], transfer_result{}, harness.now); // once more
  CHECK(harness.finished().received == names{"a"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{11, 12});
}

TEST_CASE("connector worker: a repeated preemption cancels nothing twice", "[connector]") {
  worker_harness harness;
  harness.step({.stores = {make_store(1, 7, "a", 2, 10)}});
  const connector_metadata meta{.preempted = {7}};
  harness.state.handle_preemptions(meta.preempted, harness.now);
  harness.collect();
  harness.bind(meta);
  harness.state.start_load_kv(harness.now);
  harness.state.handle_preemptions(meta.preempted, harness.now);
  harness.collect();
  CHECK(harness.cancels.size() == 1);
  harness.cancelled();
  CHECK_FALSE(harness.state.preempting());
}

TEST_CASE("connector worker: saves that begin after the reports of their step are not lost", "[connector]") {
  worker_harness harness;
  harness.bind({.loads = {make_load(9, "b", 1, 30)}, .stores = {make_store(1, 7, "a", 2, 10)}});
  harness.state.start_load_kv(harness.now);
  harness.collect();
  CHECK(harness.finished().sent.empty());
  CHECK(harness.state.take_store_outcomes().empty());
  harness.state.wait_for_save(harness.now);
  harness.state.clear();
  harness.collect();
  REQUIRE(harness.loads.size() == 1);
  harness.end(harness.loads[0], errc::ok);
  REQUIRE(harness.saves.size() == 1);
  // The request finishes in the next step, and is waited for.
  harness.bind({.finished = {{7, "a", false}}});
  CHECK(harness.finished().sent.empty());
  harness.end(harness.saves[0], errc::ok);
  CHECK(harness.finished().sent == names{"a"});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{1, {1, 1}}});
}

TEST_CASE("connector worker: a request with an unfilled block is reported as failed with its reception",
          "[connector]") {
  worker_harness harness({.task_keys_max = 1});
  harness.step({.loads = {make_load(7, "a", 2, 10), make_load(8, "b", 1, 20)}});
  REQUIRE(harness.loads.size() == 3);
  harness.end(harness.loads[0], errc::corrupt);
  auto done = harness.finished();
  CHECK(done.failed.empty());
  harness.end(harness.loads[1], errc::ok);
  harness.end(harness.loads[2], errc::ok);
  done = harness.finished();
  CHECK(done.received == names{"a", "b"});
  CHECK(done.failed == names{"a"});
  CHECK(harness.finished().failed.empty());
}

TEST_CASE("connector worker: a synchronous load goes first, is waited for, and reported page by page", "[connector]") {
  worker_options options;
  options.task_keys_max = 2;
  options.tasks_max = 1;
  worker_harness harness(options);
  harness.step({.loads = {make_load(5, "z", 4, 50)}});
  auto load = make_load(7, "a", 3, 10);
  load.id = 4;
  load.between_steps = false;
  load.blocks[0] = null_block;
  harness.step({.loads = {make_load(6, "y", 1, 60), load}, .stores = {make_store(9, 8, "b", 1, 30)}});
  CHECK(harness.state.synchronous_loads() == 2);
  REQUIRE(harness.loads.size() == 1);
  harness.end(harness.loads[0], errc::ok);
  REQUIRE(harness.loads.size() == 2);
  CHECK(harness.tasks.at(harness.loads[1]).keys.items == keys_from(700, 2));
  CHECK(harness.tasks.at(harness.loads[1]).deadline == options.synchronous_load_limit);
  harness.end(harness.loads[1], {errc::ok, errc::timeout});
  CHECK(harness.state.synchronous_loads() == 1);
  CHECK(harness.state.take_store_outcomes().empty());
  REQUIRE(harness.loads.size() == 3);
  CHECK(harness.tasks.at(harness.loads[2]).keys.items == keys_from(702, 1));
  harness.end(harness.loads[2], errc::ok);
  CHECK(harness.state.synchronous_loads() == 0);
  // It is not reported between steps: the engine would fail on the unknown name.
  const auto done = harness.finished();
  CHECK(done.received.empty());
  CHECK(done.failed.empty());
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{11});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{4, {1, 0, 1}}});
  CHECK(harness.state.sessions() == 3);
}

TEST_CASE("connector worker: a load with an id between steps is received, and reported page by page", "[connector]") {
  worker_options options;
  options.task_keys_max = 2;
  worker_harness harness(options);
  auto load = make_load(7, "a", 3, 10);
  load.id = 4;
  harness.step({.loads = {load}});
  CHECK(harness.state.synchronous_loads() == 0);
  REQUIRE(harness.loads.size() == 2);
  harness.end(harness.loads[0], {errc::ok, errc::corrupt});
  CHECK(harness.finished().received.empty());
  CHECK(harness.state.take_store_outcomes().empty());
  harness.end(harness.loads[1], errc::ok);
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{4, {1, 0, 1}}});
  const auto done = harness.finished();
  CHECK(done.received == names{"a"});
  CHECK(done.failed == names{"a"});
  CHECK(harness.state.sessions() == 0);
}

TEST_CASE(
    "connector worker: a load between steps that cannot begin is named as received and failed, whatever its blocks",
    "[connector]") {
  worker_harness harness;
  auto load = make_load(7, "a", 2, 10);
  load.id = 4;
  load.blocks.clear();
  harness.step({.loads = {load}});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{4, {0, 0}}});
  const auto done = harness.finished();
  CHECK(done.received == names{"a"});
  CHECK(done.failed == names{"a"});
  CHECK(harness.state.sessions() == 0);
}

TEST_CASE("connector worker: pages that are not chained are saved without a parent", "[connector]") {
  worker_harness harness;
  auto store = make_store(1, 8, "b", 2, 30);
  store.chained = false;
  harness.step({.stores = {store, make_store(2, 8, "b", 1, 40)}});
  REQUIRE(harness.saves.size() == 2);
  CHECK_FALSE(harness.tasks.at(harness.saves[0]).chained);
  CHECK(harness.tasks.at(harness.saves[1]).chained);
}

TEST_CASE("connector worker: an invalid synchronous load fails at once", "[connector]") {
  worker_harness harness;
  auto load = make_load(7, "a", 2, 10);
  load.id = 4;
  load.between_steps = false;
  load.blocks.pop_back();
  harness.step({.loads = {load}});
  CHECK(harness.loads.empty());
  CHECK(harness.state.synchronous_loads() == 0);
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{10});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{4, {0, 0}}});
  CHECK(harness.state.sessions() == 0);
}

TEST_CASE("connector worker: without a node loads fail at once, and nothing is saved until one attaches",
          "[connector]") {
  worker_harness harness({}, false);
  auto synchronous = make_load(9, "c", 1, 40);
  synchronous.id = 2;
  synchronous.between_steps = false;
  harness.step({.loads = {make_load(7, "a", 2, 10), synchronous}, .stores = {make_store(1, 8, "b", 1, 30)}});
  CHECK(harness.loads.empty());
  CHECK(harness.saves.empty());
  const auto done = harness.finished();
  CHECK(done.received == names{"a"});
  CHECK(done.failed == names{"a"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{10, 11, 40});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{2, {page_untried}}, {1, {0}}});
  CHECK(harness.state.sessions() == 0);

  harness.state.attach({});
  harness.step({.loads = {make_load(7, "a", 2, 10)}});
  CHECK(harness.loads.size() == 1);
}

TEST_CASE("connector worker: a load that is reported says whether a page or the node has failed", "[connector]") {
  worker_harness harness;
  const auto play = [&](errc code) {
    auto load = make_load(7, "a", 2, 10);
    load.id = 3;
    harness.step({.loads = {load}});
    harness.end(harness.loads.back(), code);
    return harness.state.take_store_outcomes();
  };
  for (const auto code : {errc::unreachable, errc::shutting_down})
    CHECK(play(code) == std::vector<store_outcome>{{3, {page_untried, page_untried}}});
  for (const auto code : {errc::not_found, errc::corrupt, errc::io_error, errc::timeout, errc::slab_damaged})
    CHECK(play(code) == std::vector<store_outcome>{{3, {page_failed, page_failed}}});
  CHECK(play(errc::ok) == std::vector<store_outcome>{{3, {page_filled, page_filled}}});
}

TEST_CASE("connector worker: on detaching from the node waiting tasks fail and running tasks end", "[connector]") {
  worker_options options;
  options.tasks_max = 1;
  worker_harness harness(options);
  harness.step(
      {.loads = {make_load(7, "a", 1, 10), make_load(8, "b", 1, 20)}, .stores = {make_store(1, 9, "c", 1, 30)}});
  REQUIRE(harness.loads.size() == 1);
  harness.state.detach(harness.now);
  harness.collect();
  auto done = harness.finished();
  CHECK(done.received == names{"b"});
  CHECK(harness.state.take_load_errors() == std::vector<block_id>{20});
  CHECK(harness.state.take_store_outcomes() == std::vector<store_outcome>{{1, {0}}});
  CHECK(harness.state.tasks_outstanding() == 1);
  harness.end(harness.loads[0], errc::ok);
  CHECK(harness.finished().received == names{"a"});
  CHECK(harness.loads.size() == 1);
  CHECK(harness.saves.empty());
}

} // namespace troupe::test::connector_worker_test
