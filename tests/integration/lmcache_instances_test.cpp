#include "tests/catch.hpp"
#include "tests/integration/lmcache_driven_engine.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"

#include <numeric>

namespace lmcache_instances_test {

/// The identity of workers whose blocks the node copies, when they register more than once.

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::driven;

TEST_CASE(
    "lmcache instances: a worker that registers the same memory again gets no further copies for the old registration",
    "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  config["memory"]["client_bytes"] = "64 KiB";
  serving_node node(write_config(scratch.path(), config));
  driven_engine one(lmcache_port(node.ready_line()), 1);
  std::vector<std::uint32_t> all(blocks - 2);
  std::iota(all.begin(), all.end(), 2U);
  constexpr auto chunks = (blocks - 2) / blocks_per_chunk;
  one.fill(1, all);
  for (std::uint32_t sequence = 1; sequence < 60; ++sequence)
    one.worker.send(store, {lmcache_key(sequence, "s", 0, chunks, 0), 1, json::array({all}), json::binary({})});
  // As a worker whose server was unreachable does, when its engine has given the blocks to other requests.
  one.enroll();
  one.memory.wipe();
  CHECK(one.worker.call(ping, {1}) == true);
  for (std::uint32_t sequence = 1; sequence < 60; ++sequence) {
    INFO("sequence " << sequence);
    const auto request = one.new_request();
    const auto found = one.look_up(sequence, chunks, request);
    const std::vector<std::uint32_t> to(all.begin(), all.begin() + found * blocks_per_chunk);
    if (found == 0)
      continue;
    REQUIRE(one.get(sequence, 0, to, 0, request));
    CHECK(one.holds(1, 0, to));
  }
  one.fill(100, all);
  CHECK(one.put(100, all));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache instances: two workers with the same instance id are separate", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  const auto port = lmcache_port(node.ready_line());
  driven_engine one(port, 1);
  one.fill(1, {1, 2, 3, 4});
  CHECK(one.put(1, {1, 2, 3, 4}));
  const auto other = start_forked([&] {
    driven_engine two(port, 1);
    two.fill(2, {1, 2, 3, 4});
    return two.worker.call(ping, {1}) == true && two.put(2, {1, 2, 3, 4}) && two.get(1, 0, {5, 6, 7, 8}) &&
           two.holds(1, 0, {5, 6, 7, 8});
  });
  CHECK(end_of(other) == 0);
  CHECK(one.worker.call(ping, {1}) == true);
  CHECK(one.get(2, 0, {5, 6, 7, 8}));
  CHECK(one.holds(2, 0, {5, 6, 7, 8}));
  // A worker on a new connection is unknown, even if it was known before: so it registers again.
  lmcache_client again(port);
  CHECK(again.call(ping, {1}) == false);
  CHECK_FALSE(one.done(again.call(store, {lmcache_key(3, "r", 0, 1, 0), 1, json::array({{1, 2}}), json::binary({})})));
  CHECK(again.call(ping, {1}) == true);
  CHECK_FALSE(again.call(unregister_memory, {1}));
  CHECK_FALSE(one.worker.call(unregister_memory, {1}));
  CHECK(one.worker.call(ping, {1}) == false);
  CHECK(node.stop() == 0);
}

namespace {

/// A worker that the node copies for, with many small retrieves of one sequence under way.
struct busy_worker {
  static constexpr std::uint32_t chunks = (blocks - 2) / blocks_per_chunk;

  scratch_directory scratch;
  serving_node node{write_config(scratch.path(), config())};
  std::uint16_t port = lmcache_port(node.ready_line());
  driven_engine one{port, 1};
  std::vector<std::uint32_t> all = numbers();

  busy_worker() {
    one.fill(1, all);
    REQUIRE(one.put(1, all));
  }

  nlohmann::json config() const {
    auto out = lmcache_config(scratch.path());
    out["memory"]["client_bytes"] = "64 KiB";
    return out;
  }
  static std::vector<std::uint32_t> numbers() {
    std::vector<std::uint32_t> out(blocks - 2);
    std::iota(out.begin(), out.end(), 2U);
    return out;
  }
  void begin_retrieves(lmcache_client& by) {
    for (int i = 0; i < 8; ++i)
      by.send(retrieve, {lmcache_key(1, "r", 0, chunks, 0), 1, json::array({all}), json::binary({}), 0});
  }
  std::vector<json> registration() const { return driven::registration(1, one.memory.handles(), one.memory.layout()); }
  /// Waits for the answers to these.
  static void wait_for(lmcache_client& at, std::vector<std::uint64_t> numbers) {
    while (!numbers.empty()) {
      const auto answer = at.receive(patience);
      REQUIRE(answer);
      std::erase(numbers, answer->number);
    }
  }
  /// The engine gives the blocks to other requests.
  void check_untouched() {
    one.fill(2, all);
    for (int i = 0; i < 5; ++i)
      one.scheduler.call(query, {"nothing"});
    CHECK(one.holds(2, 0, all));
  }
};

} // namespace

TEST_CASE_METHOD(busy_worker, "lmcache instances: no write follows the reply to a registration or unregistration",
                 "[lmcache]") {
  const auto how = GENERATE(0, 1, 2, 3);
  INFO("how " << how);
  for (int round = 0; round < 10; ++round) {
    INFO("round " << round);
    one.memory.wipe();
    begin_retrieves(one.worker);
    if (how == 0) {
      one.enroll();
    } else if (how == 1) {
      one.worker.send(register_memory, registration());
      wait_for(one.worker, {one.worker.send(register_memory, registration())});
    } else if (how == 2) {
      CHECK_FALSE(one.worker.call(unregister_memory, {1}));
    } else {
      one.worker = lmcache_client(port);
      one.enroll();
    }
    check_untouched();
    if (how == 2)
      one.enroll();
  }
  CHECK(one.get(1, 0, all));
  CHECK(one.holds(1, 0, all));
  CHECK(node.stop() == 0);
}

TEST_CASE_METHOD(busy_worker, "lmcache instances: of two overlapping registrations the last one counts", "[lmcache]") {
  worker_memory other;
  const auto wanted = driven::registration(1, other.handles(), other.layout());
  for (int round = 0; round < 10; ++round) {
    INFO("round " << round);
    const bool others = round % 2 == 0;
    CHECK_FALSE(one.worker.call(unregister_memory, {1}));
    wait_for(one.worker, {one.worker.send(register_memory, others ? registration() : wanted),
                          one.worker.send(register_memory, others ? wanted : registration())});
    one.memory.wipe();
    other.wipe();
    REQUIRE(one.get(1, 0, all));
    auto& there = others ? other : one.memory;
    auto& not_there = others ? one.memory : other;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      CHECK(there.holds(all[i], 1, i));
      CHECK(not_there.is_wiped(all[i]));
    }
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache instances: a namespace that is removed by force is registered again", "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  config["http"] = {{"enabled", true}, {"port", 0}};
  serving_node node(write_config(scratch.path(), config));
  const auto port = lmcache_port(node.ready_line());
  driven_engine one(port, 1);
  one.fill(1, {1, 2, 3, 4});
  REQUIRE(one.put(1, {1, 2, 3, 4}));
  REQUIRE(one.look_up(1, 2, "a") == 2);
  const auto there = json::parse(http(node, "GET", "/v1/namespaces").body).at("namespaces");
  REQUIRE(there.size() == 1);
  const auto name = there.at(0).at("name").get<std::string>();
  CHECK(http(node, "DELETE", "/v1/namespaces/" + name + "?force=true").status == 204);
  CHECK(one.worker.call(ping, {1}) == false);
  CHECK_FALSE(one.put(2, {1, 2, 3, 4}));
  CHECK(one.worker.call(ping, {1}) == true);
  one.enroll();
  CHECK(one.worker.call(ping, {1}) == true);
  CHECK(one.look_up(1, 2, "b") == 0);
  CHECK(one.put(1, {1, 2, 3, 4}));
  CHECK(one.look_up(1, 2, "c") == 2);
  CHECK(node.stop() == 0);
}

} // namespace lmcache_instances_test
