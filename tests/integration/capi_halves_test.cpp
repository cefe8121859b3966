#include "tests/catch.hpp"
#include "tests/integration/capi_engine.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace capi_halves_test {

/// Engines that know libtroupe.so and nothing else, against nodes in processes of their own.

using namespace troupe::test;

namespace {

/// A node without a namespace, that makes them as engines want them.
nlohmann::json plain_node(const scratch_directory& scratch) {
  auto out = node_config(scratch.path());
  out["namespaces"] = nlohmann::json::array();
  out["storage"] = {{"ranks", nlohmann::json::array()}};
  out["memory"]["bytes"] = "64 MiB";
  return out;
}

std::vector<std::uint32_t> prompt_from(std::uint32_t first, std::size_t tokens) {
  std::vector<std::uint32_t> out(tokens);
  std::iota(out.begin(), out.end(), first);
  return out;
}

bool is_attached(const capi_engine& x, std::size_t workers = 1) {
  for (std::size_t i = 0; i < workers; ++i)
    if (said_by(troupe_worker_attached, x.worker(i)).code != TROUPE_OK)
      return false;
  return said_by(troupe_scheduler_attached, x.scheduler()).code == TROUPE_OK;
}

} // namespace

TEST_CASE("capi halves: an engine behind the C interface loads its saved blocks in every layout", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  capi_shape shape;
  shape.workers = GENERATE(1U, 2U);
  shape.opaque = GENERATE(false, true);
  shape.blocks_per_page = shape.opaque ? 1 : GENERATE(1U, 2U);
  shape.keys = GENERATE(as<std::uint32_t>{}, TROUPE_KEYS_ENGINE_HASHES, TROUPE_KEYS_MD5_CHAIN, TROUPE_KEYS_ROLLING);
  CAPTURE(shape.workers, shape.opaque, shape.blocks_per_page, shape.keys);
  const auto prompt = prompt_from(1000, 70);
  {
    capi_engine first(connection.get(), shape);
    CHECK(is_attached(first, shape.workers));
    CHECK(first.matched("a", prompt) == 0);
    first.run("a", prompt, {1, 7, 3, 9, 11});
    CHECK(first.tracked() == 0);
  }
  capi_engine second(connection.get(), shape);
  const auto loaded = second.load("b", prompt, {2, 4, 6, 8, 10});
  CHECK(loaded.tokens == 64);
  CHECK(loaded.errors.empty());
  CHECK(loaded.failed.empty());
  CHECK(loaded.right);
  CHECK(second.tracked() == 0);
  troupe_bytes stats{};
  call(troupe_worker_stats, second.worker(0), &stats);
  const auto json = nlohmann::json::parse(stats.data, stats.data + stats.length);
  CHECK(json.at("hit_tokens") == 64);
  CHECK(json.at("loaded_bytes") == 64 / shape.block_tokens * shape.block_bytes() * shape.layers);
  call(troupe_scheduler_stats, second.scheduler(), &stats);
  CHECK(nlohmann::json::parse(stats.data, stats.data + stats.length) == nlohmann::json{{"attached", 1},
                                                                                       {"tracked_requests", 0},
                                                                                       {"hit_requests", 1},
                                                                                       {"hit_tokens", 64},
                                                                                       {"passed_over_tokens", 0}});
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: incompatible engines never share a page", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  const auto prompt = prompt_from(5, 40);
  const capi_shape shape;
  capi_engine first(connection.get(), shape);
  first.run("a", prompt, {1, 2, 3});
  const auto other = [&](auto change) {
    capi_shape changed;
    change(changed);
    return capi_engine(connection.get(), changed).matched("b", prompt);
  };
  CHECK(other([](capi_shape&) {}) == 32);
  CHECK(other([](capi_shape& x) { x.model = "other/model"; }) == 0);
  CHECK(other([](capi_shape& x) { x.hash_algorithm = "xxhash"; }) == 0);
  CHECK(other([](capi_shape& x) { x.dtype = "float16"; }) == 0);
  CHECK(other([](capi_shape& x) { x.dtype = "a_dtype_of_tomorrow"; }) == 0);
  CHECK(other([](capi_shape& x) { x.layers = 3; }) == 0);
  CHECK(other([](capi_shape& x) { x.opaque = true; }) == 0);
  CHECK(other([](capi_shape& x) { x.workers = 2; }) == 0);
  CHECK(other([](capi_shape& x) { x.min_load_tokens = 33; }) == 0);
  CHECK(other([](capi_shape& x) { x.model = std::string(3000, 'm'); }) == 0);
  // Two that are called alike.
  capi_shape named;
  named.name = "mine";
  named.model = "second/model";
  CHECK(capi_engine::try_scheduler(connection.get(), named).code == TROUPE_OK);
  named.model = "third/model";
  const auto refused = capi_engine::try_scheduler(connection.get(), named);
  CHECK(refused.code == TROUPE_IDENTITY_MISMATCH);
  CHECK(refused.text.find("mine") != std::string::npos);

  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: an engine behind the C interface can enable or disable loads from disk", "[capi]") {
  const scratch_directory scratch;
  auto config = plain_node(scratch);
  config["storage"]["disk_bytes"] = "256 MiB";
  config["registry"]["durability"] = "strict";
  config["memory"]["prefetch_bytes"] = "0 B"; // a lookup brings nothing into memory
  const auto prompt = prompt_from(31, 70);
  const auto path = write_config(scratch.path(), config);
  {
    serving_node node(path);
    const auto connection = connect_to(node.address());
    capi_engine first(connection.get(), {});
    first.run("a", prompt, {1, 2, 3, 4, 5});
    CHECK(node.stop() == 0);
  }
  // Its memory is empty now.
  serving_node node(path);
  const auto connection = connect_to(node.address());
  const auto sources = [&](capi_engine& engine, const char* request, std::uint32_t tokens) {
    auto out = sized<troupe_hit_sources>();
    call(troupe_scheduler_hit_sources, engine.scheduler(), request, tokens, &out);
    return std::vector<std::uint32_t>{out.memory, out.disk, out.unknown};
  };
  capi_shape shape;
  shape.disk_hits = TROUPE_DISK_HITS_NEVER;
  capi_engine never(connection.get(), shape);
  CHECK(never.matched("b", prompt) == 0);
  const std::vector<std::uint32_t> blocks{1, 2, 3, 4, 5};
  call(troupe_scheduler_allocated, never.scheduler(), "b", blocks.data(), blocks.size(), 0U);
  troupe_bytes stats{};
  call(troupe_scheduler_stats, never.scheduler(), &stats);
  CHECK(nlohmann::json::parse(stats.data, stats.data + stats.length).at("passed_over_tokens") == 64);

  shape.disk_hits = GENERATE(as<std::uint32_t>{}, TROUPE_DISK_HITS_ALWAYS, TROUPE_DISK_HITS_WHEN_FASTER);
  capi_engine other(connection.get(), shape);
  if (shape.disk_hits == TROUPE_DISK_HITS_ALWAYS) {
    // The other rule computes what it finds until its first load has ended.
    CHECK(other.matched("c", prompt) == 64);
    call(troupe_scheduler_allocated, other.scheduler(), "c", blocks.data(), blocks.size(), 64U);
    CHECK(sources(other, "c", 64) == std::vector<std::uint32_t>{0, 64, 0});
  }
  CHECK(other.load("d", prompt, {6, 7, 8, 9, 10}).right);
  // They are in memory from now on.
  capi_engine third(connection.get(), {});
  CHECK(third.matched("e", prompt) == 64);
  call(troupe_scheduler_allocated, third.scheduler(), "e", blocks.data(), blocks.size(), 64U);
  CHECK(sources(third, "e", 64) == std::vector<std::uint32_t>{64, 0, 0});
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: an engine behind the C interface receives cache events and resets its cache", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  capi_engine engine(connection.get(), {});
  const auto prompt = prompt_from(77, 50);
  engine.run("first", prompt, {1, 2, 3, 4});
  auto events = sized<troupe_events>();
  call(troupe_scheduler_take_events, engine.scheduler(), &events);
  REQUIRE(events.count == 1);
  CHECK(events.kinds[0] == TROUPE_EVENT_STORED);
  CHECK(ids_of(events.requests) == std::vector<std::string>{"first"});
  CHECK(events.key_ends[0] == 3);
  CHECK(events.key_count == 3);
  CHECK(events.page_tokens == 16);
  CHECK(std::all_of(events.parents, events.parents + 16, [](auto x) { return x == 0; }));
  CHECK(engine.matched("again", prompt) == 48);
  call(troupe_scheduler_reset_cache, engine.scheduler());
  call(troupe_scheduler_take_events, engine.scheduler(), &events);
  REQUIRE(events.count == 1);
  CHECK(events.kinds[0] == TROUPE_EVENT_ALL_CLEARED);
  CHECK(engine.matched("after", prompt) == 0);
  std::uint32_t count = 0;
  call(troupe_scheduler_finished_count, engine.scheduler(), &count);
  CHECK(count == 1);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: an engine behind the C interface receives all events or none", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  const auto prompt = prompt_from(78, 50);
  auto events = sized<troupe_events>();
  capi_engine silent(connection.get(), {.events = TROUPE_EVENTS_NONE});
  silent.run("a", prompt_from(79, 50), {1, 2, 3, 4});
  call(troupe_scheduler_take_events, silent.scheduler(), &events);
  CHECK(events.count == 0);
  capi_engine engine(connection.get(), {.events = TROUPE_EVENTS_ALL});
  const auto taken = [&] {
    call(troupe_scheduler_take_events, engine.scheduler(), &events);
    std::vector<std::vector<std::uint64_t>> out;
    for (std::size_t i = 0; i < events.count; ++i)
      out.push_back({events.kinds[i], events.first_pages[i], events.page_counts[i], events.groups[i], events.saves[i]});
    return out;
  };
  using list = std::vector<std::vector<std::uint64_t>>;
  engine.run("a", prompt, {1, 2, 3, 4});
  CHECK(taken() ==
        list{{TROUPE_EVENT_REMOVED, 0, 3, 0, 0}, {TROUPE_EVENT_SAVING, 0, 3, 0, 1}, {TROUPE_EVENT_STORED, 0, 3, 0, 1}});
  auto longer = prompt;
  longer.insert(longer.end(), 30, 5);
  CHECK(engine.matched("b", longer) == 48);
  CHECK(taken() == list{{TROUPE_EVENT_STORED, 0, 3, 0, 0}, {TROUPE_EVENT_REMOVED, 3, 1, 0, 0}});
  CHECK(capi_engine::try_scheduler(connection.get(), {.events = 3}).code == TROUPE_INVALID_ARGUMENT);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: a preempted request of an engine behind the C interface loses only its saves", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  capi_engine engine(connection.get(), {});
  const auto prompt = prompt_from(900, 64);
  const std::vector<std::uint32_t> blocks{1, 2, 3, 4};
  CHECK(engine.matched("x", prompt) == 0);
  call(troupe_scheduler_allocated, engine.scheduler(), "x", blocks.data(), blocks.size(), 0U);
  engine.step({{"x", 0, 64, blocks}}, {}, [&] { engine.compute(prompt, blocks); });
  // Its blocks are overwritten from here on.
  engine.step({}, {"x"});
  engine.compute(prompt_from(4000, 64), blocks);
  const auto back = engine.load("x", prompt, {5, 6, 7, 8});
  CHECK(back.right);
  CHECK(back.errors.empty());
  CHECK(engine.tracked() == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: an engine starts without a node and attaches later", "[capi]") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), plain_node(scratch));
  const auto address = (scratch.path() / "data").string();
  std::string socket;
  {
    serving_node node(config);
    socket = node.address();
    CHECK(node.stop() == 0);
  }
  const auto connection = connect_to(socket, -1);
  capi_engine engine(connection.get(), {});
  const auto why = said_by(troupe_scheduler_attached, engine.scheduler());
  CHECK(why.code == TROUPE_UNREACHABLE);
  CHECK_FALSE(why.text.empty());
  const auto prompt = prompt_from(1, 48);
  engine.run("before", prompt, {1, 2, 3});
  CHECK(engine.matched("still before", prompt) == 0);
  std::int32_t keep = 1;
  call(troupe_scheduler_finished, engine.scheduler(), "still before", &keep);
  CHECK(keep == 0);
  serving_node node(config);
  REQUIRE(eventually([&] { return is_attached(engine); }));
  engine.run("after", prompt, {1, 2, 3});
  REQUIRE(eventually([&] {
    const auto found = engine.matched("again", prompt);
    call(troupe_scheduler_finished, engine.scheduler(), "again", &keep);
    if (found == 0)
      engine.run("once more", prompt, {1, 2, 3});
    return found == 32;
  }));
  const auto loaded = engine.load("last", prompt, {4, 5, 6});
  CHECK(loaded.right);
  CHECK(loaded.errors.empty());
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: an engine continues when its node is killed and uses the next one", "[capi]") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), plain_node(scratch));
  std::optional<serving_node> node(std::in_place, config);
  const auto connection = connect_to(node->address());
  capi_engine engine(connection.get(), {});
  const auto prompt = prompt_from(31, 48);
  engine.run("a", prompt, {1, 2, 3});
  CHECK(engine.matched("b", prompt) == 32);
  // Its scheduler has promised tokens that are lost: the load ends all the same, and names every block.
  node->program().kill();
  const auto lost = engine.load("b", prompt, {4, 5, 6});
  CHECK(lost.tokens == 32);
  CHECK(lost.errors == std::set<std::uint32_t>{4, 5});
  CHECK(lost.failed == std::vector<std::string>{"b"});
  engine.run("c", prompt, {1, 2, 3});
  CHECK(engine.tracked() == 0);
  node.emplace(config);
  REQUIRE(eventually([&] {
    engine.run("d", prompt, {1, 2, 3});
    const auto found = engine.matched("e", prompt);
    std::int32_t keep = 0;
    call(troupe_scheduler_finished, engine.scheduler(), "e", &keep);
    return found == 32;
  }));
  CHECK(engine.load("f", prompt, {7, 8, 9}).right);
  CHECK(node->stop() == 0);
}

TEST_CASE("capi halves: loads inside a step complete before its forward pass", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  capi_shape shape;
  shape.synchronous_loads = true;
  shape.workers = 2;
  capi_engine engine(connection.get(), shape);
  const auto prompt = prompt_from(600, 70);
  engine.run("a", prompt, {1, 2, 3, 4, 5});
  const auto loaded = engine.load("b", prompt, {6, 7, 8, 9, 10});
  CHECK(loaded.tokens == 64);
  CHECK(loaded.errors.empty());
  CHECK(loaded.right);
  CHECK(engine.tracked() == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: a worker unregisters its memory and registers it again", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  const auto connection = connect_to(node.address());
  capi_engine engine(connection.get(), {});
  const auto prompt = prompt_from(8, 48);
  engine.run("a", prompt, {1, 2, 3});
  call(troupe_worker_unregister, engine.worker(0));
  CHECK(said_by(troupe_worker_attached, engine.worker(0)).code == TROUPE_UNREACHABLE);
  const auto asleep = engine.load("b", prompt, {4, 5, 6});
  CHECK(asleep.errors == std::set<std::uint32_t>{4, 5});
  engine.register_again();
  const auto awake = engine.load("c", prompt, {7, 8, 9});
  CHECK(awake.errors.empty());
  CHECK(awake.right);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: a fork before the first connection is safe because no thread runs yet", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), plain_node(scratch)));
  REQUIRE(troupe_interface_version() == TROUPE_INTERFACE_VERSION);
  const auto prompt = prompt_from(50, 48);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int code = 1;
    {
      const auto own = connect_to(node.address());
      capi_engine engine(own.get(), {});
      engine.run("child", prompt, {1, 2, 3});
      code = engine.tracked() == 0 ? 0 : 2;
    }
    ::_exit(code);
  }
  const auto connection = connect_to(node.address());
  capi_engine engine(connection.get(), {});
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(engine.load("parent", prompt, {4, 5, 6}).tokens == 32);
  CHECK(node.stop() == 0);
}

TEST_CASE("capi halves: handles of a process are refused in its child", "[capi]") {
  const scratch_directory scratch;
  const auto connection = connect_to((scratch.path() / "nobody").string(), -1);
  capi_engine engine(connection.get(), {});
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // No function of the test library: its locks may be held by threads that are not here.
    std::size_t tracked = 0;
    bool right = troupe_scheduler_tracked_requests(engine.scheduler(), &tracked, nullptr) == TROUPE_UNSUPPORTED;
    right = right && troupe_worker_clear(engine.worker(0), nullptr) == TROUPE_UNSUPPORTED;
    troupe_scheduler_destroy(engine.scheduler());
    troupe_worker_destroy(engine.worker(0));
    troupe_connection_destroy(connection.get());
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(engine.tracked() == 0);
}

} // namespace capi_halves_test
