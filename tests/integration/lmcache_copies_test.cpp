#include "tests/catch.hpp"
#include "tests/integration/lmcache_driven_engine.hpp"
#include "tests/integration/support.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <unistd.h>

namespace lmcache_copies_test {

/// Workers of LMCache whose blocks the node copies itself, out of tensors in shared memory.

using namespace troupe;
using namespace troupe::test;
using namespace troupe::test::driven;

TEST_CASE("lmcache copies: the node stores a worker's blocks and writes them into blocks of another process",
          "[lmcache]") {
  const auto how = GENERATE(arrangement::planes_outside, arrangement::planes_in_block, arrangement::joined_by_heads);
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  const auto port = lmcache_port(node.ready_line());
  driven_engine one(port, 1, how);
  CHECK(one.worker.call(ping, {1}) == true);
  CHECK(one.look_up(1, 3, "nothing") == 0);
  const std::vector<std::uint32_t> from{9, 3, 4, 5, 30, 1};
  one.fill(1, from);
  CHECK(one.put(1, from));
  // All is there.
  CHECK(one.put(1, from));
  CHECK(one.look_up(1, 4, "a") == 3);
  one.memory.wipe();
  const std::vector<std::uint32_t> to{2, 3, 31, 8, 9, 10};
  CHECK(one.get(1, 0, to, 0, "a"));
  CHECK(one.holds(1, 0, to));
  CHECK(one.memory.is_wiped(1));
  CHECK(one.memory.is_wiped(30));

  // A worker in another process with its own memory.
  const auto other = start_forked([&] {
    driven_engine two(port, 2, how);
    two.memory.wipe();
    const std::vector<std::uint32_t> mine{20, 21, 7, 6};
    return two.look_up(1, 3, "b") == 3 && two.get(1, 1, mine, 0, "b") && two.holds(1, 2, mine) &&
           two.memory.is_wiped(22);
  });
  CHECK(end_of(other) == 0);

  // Blocks of the front that others are reading stay as they are.
  one.memory.wipe();
  CHECK(one.get(1, 0, to, 3 * block_tokens + 1));
  CHECK(one.memory.is_wiped(2));
  CHECK(one.memory.is_wiped(31));
  CHECK(one.holds(1, 3, {8, 9, 10}));

  // All or nothing.
  one.memory.wipe();
  CHECK_FALSE(one.get(1, 2, {12, 13, 14, 15}));
  CHECK_FALSE(one.get(2, 0, {12, 13}));
  CHECK(one.memory.is_wiped(12));
  CHECK_FALSE(one.scheduler.call(clear, {true}));
  CHECK_FALSE(one.get(1, 0, to));
  CHECK(one.look_up(1, 3, "c") == 0);
  CHECK_FALSE(one.worker.call(unregister_memory, {1}));
  CHECK_FALSE(one.put(1, from));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: workers that copy themselves share pages with workers whose node copies", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  const auto port = lmcache_port(node.ready_line());
  driven_engine one(port, 1, arrangement::planes_in_block);
  const std::vector<std::uint32_t> from{5, 6, 9, 8};
  one.fill(7, from);
  REQUIRE(one.put(7, from));
  lmcache_client worker(port);
  const auto notified = worker.call(register_worker, {{{"instance_id", 2},
                                                       {"model_name", "m"},
                                                       {"world_size", 1},
                                                       {"block_size", block_tokens},
                                                       {"num_layers", layers},
                                                       {"hidden_dim_size", heads * content},
                                                       {"dtype_str", "bfloat16"},
                                                       {"use_mla", false},
                                                       {"num_physical_slots", chunk}}});
  lmcache_pool pool(notified->at("shm_name").get<std::string>(), notified->at("pool_size").get<std::size_t>());
  const auto found = worker.call(prepare_retrieve, {lmcache_key(7, "r", 0, 2, 0), 2});
  REQUIRE(found->at("success") == true);
  const auto& slots = found->at("context").at("slots");
  REQUIRE(slots.size() == 2);
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    // Planes, layers, tokens, hidden elements.
    const auto slot = pool.slot(slots[i]);
    std::size_t at = 0;
    for (std::uint32_t p = 0; p < 2; ++p)
      for (std::uint32_t l = 0; l < layers; ++l)
        for (std::uint32_t b = 0; b < blocks_per_chunk; ++b, at += block_bytes)
          CHECK(std::memcmp(slot.data() + at, one.memory.plane(l, p, from[i * blocks_per_chunk + b]).data(),
                            block_bytes) == 0);
    CHECK(at == slot.size());
  }
  // Neither layout can read pages of the other.
  CHECK(one.done(worker.call(store, {lmcache_key(8, "r", 0, 1, 0), 2, json::array({{1, 2}}), json::binary({})})) ==
        false);
  CHECK(worker.call(prepare_store, {lmcache_key(8, "r", 0, 1, 0), 1})->at("context").empty());

  // With heads outside, blocks are stored as they are: other pages, which only engines of the same layout find.
  driven_engine other(port, 3, arrangement::joined_by_heads);
  CHECK_FALSE(other.get(7, 0, {1, 2, 3, 4}));
  CHECK(other.look_up(7, 2, "both") == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: memory that does not match its registration is refused", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  driven_engine one(lmcache_port(node.ready_line()), 1);
  worker_memory memory;
  std::int64_t instance = 100;
  const auto refused = [&](const std::vector<json>& payloads) {
    const auto id = payloads[0].get<std::int64_t>();
    CHECK_FALSE(one.worker.call(register_memory, payloads));
    CHECK_FALSE(
        one.done(one.worker.call(store, {lmcache_key(3, "r", 0, 1, 0), id, json::array({{1, 2}}), json::binary({})})));
    CHECK_FALSE(one.done(
        one.worker.call(retrieve, {lmcache_key(3, "r", 0, 1, 0), id, json::array({{1, 2}}), json::binary({}), 0})));
    for (int i = 0; i < 3; ++i)
      CHECK(one.worker.call(ping, {id}) == false);
  };
  const auto with = [&](const std::function<void(json&)>& change) {
    auto handles = memory.handles();
    for (auto& x : handles)
      change(x);
    refused(registration(++instance, handles, "NHD"));
  };
  with([](json& x) { x["type"] = "cuda_vmm"; });
  with([](json& x) { x["type"] = "whatever"; });
  with([](json& x) { x["version"] = 2; });
  with([](json& x) { x["shm_name"] = "/../etc/passwd"; });
  with([](json& x) { x["shm_name"] = ""; });
  with([](json& x) { x["shm_name"] = "/troupe_test_kv_of_nobody"; });
  with([](json& x) { x["nbytes"] = 2 * worker_memory::bytes(); });
  with([](json& x) { x["nbytes"] = worker_memory::bytes() / 2; });
  with([](json& x) { x["metadata"]["dtype"] = "complex128"; });
  with([](json& x) { x["metadata"]["shape"][1] = blocks + 1; });
  with([](json& x) { x["metadata"]["shape"] = {2, blocks}; });
  with([](json& x) { x["metadata"]["stride"][1] = std::uint64_t{1} << 60U; });
  with([](json& x) { x["metadata"]["stride"][0] = ~std::uint64_t{0}; });
  with([](json& x) { x["metadata"]["stride"][1] = 1; });
  with([](json& x) { x["metadata"]["stride"][2] = 1; });
  with([](json& x) { x["metadata"]["storage_offset"] = ~std::uint64_t{0}; });
  with([](json& x) { x["metadata"]["storage_offset"] = 1U << 30U; });
  with([](json& x) { x = 5; });
  with([](json& x) { x.erase("metadata"); });
  // GPU memory that there is not.
  with([](json& x) {
    x = {{"type", "cuda_raw"},        {"version", 1},
         {"metadata", x["metadata"]}, {"ipc_handle", json::binary(std::vector<std::uint8_t>(64, 7))},
         {"alloc_offset", 0},         {"nbytes", worker_memory::bytes()}};
  });
  refused(registration(++instance, {}, "NHD"));
  refused(registration(++instance, memory.handles(), "HNDX"));
  refused(registration(++instance, memory.handles(), "NHD", json::array({group(0), group(1)})));
  auto strange = group();
  strange["layer_indices"] = {0, 7};
  refused(registration(++instance, memory.handles(), "NHD", json::array({strange})));
  strange = group();
  strange["tokens_per_block"] = 3 * block_tokens;
  refused(registration(++instance, memory.handles(), "NHD", json::array({strange})));
  auto engine = registration(++instance, memory.handles(), "NHD");
  engine[4] = "sglang";
  refused(engine);
  refused({++instance, 5});
  node.wait_for_log("handles of type 'cuda_vmm'");
  node.wait_for_log("several groups of KV caches (2)");

  // The same once more, with valid values.
  CHECK_FALSE(one.worker.call(register_memory, registration(instance, memory.handles(), "NHD")));
  CHECK(one.worker.call(ping, {instance}) == true);

  // Blocks that there are not, and too few, or more lists than groups.
  CHECK_FALSE(one.put(4, {1, blocks}));
  CHECK_FALSE(one.put(4, {1, 0xffffffff}));
  CHECK_FALSE(one.get(4, 0, {1, blocks}));
  const auto key = lmcache_key(4, "r", 0, 2, 0);
  for (const auto& lists :
       {json::array({{1, 2, 3}}), json::array({{1, 2, 3, 4}, {1, 2, 3, 4}}), json::array(), json(5)})
    CHECK_FALSE(one.done(one.worker.call(store, {key, 1, lists, json::binary({})})));
  CHECK_FALSE(one.done(one.worker.call(store, {key, 1, json::array({{1, 2, 3, 4}}), 5})));
  CHECK_FALSE(one.done(one.worker.call(retrieve, {key, 1, json::array({{1, 2, 3, 4}}), json::binary({}), -1})));
  // More blocks than are needed, as engines send.
  one.fill(4, {1, 2, 3, 4});
  CHECK(one.done(one.worker.call(store, {key, 1, json::array({{1, 2, 3, 4, 5}}), json::binary({})})));
  CHECK(one.get(4, 0, {6, 7, 8, 9}));
  CHECK(one.holds(4, 0, {6, 7, 8, 9}));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: requests above the pin limit are copied in pieces and queued", "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  config["memory"]["client_bytes"] = "64 KiB";
  serving_node node(write_config(scratch.path(), config));
  driven_engine one(lmcache_port(node.ready_line()), 1);
  std::vector<std::uint32_t> all(blocks - 2);
  std::iota(all.begin(), all.end(), 2U);
  one.fill(1, all);
  CHECK(one.put(1, all));
  constexpr auto chunks = (blocks - 2) / blocks_per_chunk;
  CHECK(one.look_up(1, chunks, "a") == chunks);
  one.memory.wipe();
  CHECK(one.get(1, 0, all, block_tokens * 5, "a"));
  CHECK(one.holds(1, 5, {all.begin() + 5, all.end()}));
  CHECK(one.memory.is_wiped(6));
  std::vector<std::uint64_t> sent;
  for (std::uint32_t sequence = 2; sequence < 12; ++sequence) {
    one.fill(sequence, all);
    sent.push_back(
        one.worker.send(store, {lmcache_key(sequence, "s", 0, chunks, 0), 1, json::array({all}), json::binary({})}));
    sent.push_back(one.worker.send(
        retrieve, {lmcache_key(1, "r", 0, chunks, 0), 1, json::array({all}), json::binary({}), chunks * chunk}));
  }
  for (std::size_t answers = 0; answers < sent.size(); ++answers) {
    const auto answer = one.worker.receive(patience);
    REQUIRE(answer);
    CHECK(one.done(answer->value));
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: chunks whose blocks an engine has freed are not stored", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  driven_engine one(lmcache_port(node.ready_line()), 1);
  one.fill(1, {1, 2, 0, 0, 0, 3});
  CHECK(one.put(1, {1, 2, 0, 0, 0, 3}));
  CHECK(one.look_up(1, 3, "a") == 1);
  CHECK(one.get(1, 2, {5, 6}));

  // Where blocks fall out of a window, a chunk that has lost one of them is not stored.
  auto sliding = group();
  sliding["sw_size_tokens"] = 24;
  CHECK_FALSE(one.worker.call(register_memory, registration(1, one.memory.handles(), "NHD", json::array({sliding}))));
  CHECK(one.put(2, {1, 2, 0, 3, 4, 5}));
  CHECK(one.look_up(2, 3, "b") == 1);
  CHECK_FALSE(one.get(2, 1, {7, 8}));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: pages found by a lookup stay available for a late retrieve", "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  // A few pages of everything, and leases that end soon.
  config["storage"] = {{"disk_bytes", 0}, {"ranks", json::array()}};
  config["memory"] = {{"bytes", "4 MiB"}};
  config["registry"]["lease_default"] = "2 s";
  config["registry"]["lease_max"] = "2 s";
  serving_node node(write_config(scratch.path(), config));
  driven_engine one(lmcache_port(node.ready_line()), 1);
  one.fill(1, {1, 2, 3, 4});
  REQUIRE(one.put(1, {1, 2, 3, 4}));
  REQUIRE(one.look_up(1, 2, "late") == 2);
  one.fill(2, {9, 10, 11, 12});
  REQUIRE(one.put(2, {9, 10, 11, 12}));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (std::uint32_t sequence = 100; sequence < 500 || std::chrono::steady_clock::now() < until; ++sequence)
    one.put(sequence, {5, 6, 7, 8});
  CHECK(one.get(1, 0, {5, 6, 7, 8}, 0, "late"));
  CHECK(one.holds(1, 0, {5, 6, 7, 8}));
  // Pages that are not locked have been evicted.
  CHECK_FALSE(one.get(2, 0, {5, 6, 7, 8}));
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: shared memory truncated by its worker fails only its copies", "[lmcache]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), lmcache_config(scratch.path())));
  const auto port = lmcache_port(node.ready_line());
  driven_engine one(port, 1);
  one.fill(1, {1, 2, 3, 4});
  REQUIRE(one.put(1, {1, 2, 3, 4}));
  one.memory.cut(block_bytes);
  CHECK_FALSE(one.put(2, {1, 2, 3, 4}));
  CHECK_FALSE(one.get(1, 0, {1, 2, 3, 4}));
  CHECK(one.look_up(2, 2, "a") == 0);
  one.memory.cut(worker_memory::bytes());
  one.memory.wipe();
  CHECK(one.get(1, 0, {5, 6, 7, 8}));
  CHECK(one.holds(1, 0, {5, 6, 7, 8}));
  one.fill(2, {1, 2, 3, 4});
  CHECK(one.put(2, {1, 2, 3, 4}));
  CHECK(one.look_up(2, 2, "b") == 2);
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: workers killed during copies leave nothing behind", "[lmcache]") {
  const scratch_directory scratch;
  auto config = lmcache_config(scratch.path());
  config["storage"] = {{"disk_bytes", 0}, {"ranks", json::array()}};
  config["memory"] = {{"bytes", "4 MiB"}};
  serving_node node(write_config(scratch.path(), config));
  const auto port = lmcache_port(node.ready_line());
  for (std::int64_t round = 0; round < 4; ++round) {
    const auto victim = start_forked([&] {
      driven_engine x(port, 10 + round);
      for (std::uint32_t sequence = 0;; ++sequence) {
        x.worker.send(store, {lmcache_key(100 + sequence % 50, "v", 0, 4, 0), x.instance,
                              json::array({{1, 2, 3, 4, 5, 6, 7, 8}}), json::binary({})});
        x.worker.send(retrieve, {lmcache_key(100 + sequence % 50, "v", 0, 4, 0), x.instance,
                                 json::array({{9, 10, 11, 12, 13, 14, 15, 16}}), json::binary({}), 0});
        while (x.worker.receive(std::chrono::milliseconds(sequence % 8 == 7 ? 1 : 0)))
          continue;
      }
      return true;
    });
    // Until it is at it.
    driven_engine watcher(port, 50 + round);
    const auto until = std::chrono::steady_clock::now() + patience;
    while (watcher.look_up(101, 4, watcher.new_request()) == 0 && std::chrono::steady_clock::now() < until)
      continue;
    ::kill(victim, SIGKILL);
    end_of(victim);
    for (const auto& left : std::filesystem::directory_iterator("/dev/shm"))
      if (left.path().filename().string().starts_with("troupe_test_kv_" + std::to_string(victim) + "_"))
        std::filesystem::remove(left.path());
  }
  driven_engine one(port, 1);
  for (std::uint32_t sequence = 0; sequence < 20; ++sequence) {
    one.fill(sequence, {1, 2, 3, 4});
    REQUIRE(one.put(sequence, {1, 2, 3, 4}));
    one.memory.wipe();
    REQUIRE(one.get(sequence, 0, {5, 6, 7, 8}));
    REQUIRE(one.holds(sequence, 0, {5, 6, 7, 8}));
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("lmcache copies: workers register again after their node was killed and restarted", "[lmcache]") {
  const scratch_directory scratch;
  auto json_config = lmcache_config(scratch.path(), "strict");
  {
    serving_node probe(write_config(scratch.path(), json_config));
    json_config["lmcache"]["port"] = lmcache_port(probe.ready_line());
    CHECK(probe.stop() == 0);
  }
  const auto config = write_config(scratch.path(), json_config);
  std::optional<serving_node> node(std::in_place, config);
  driven_engine one(lmcache_port(node->ready_line()), 1);
  one.fill(1, {1, 2, 3, 4});
  REQUIRE(one.put(1, {1, 2, 3, 4}));
  node->program().kill();
  node.emplace(config);

  CHECK(one.worker.call(ping, {1}) == false);
  CHECK_FALSE(one.put(2, {1, 2, 3, 4}));
  CHECK_FALSE(one.get(1, 0, {1, 2, 3, 4}));
  CHECK(one.worker.call(ping, {1}) == true);
  one.enroll();
  CHECK(one.worker.call(ping, {1}) == true);
  one.memory.wipe();
  CHECK(one.look_up(1, 2, "a") == 2);
  CHECK(one.get(1, 0, {5, 6, 7, 8}, 0, "a"));
  CHECK(one.holds(1, 0, {5, 6, 7, 8}));
  CHECK(node->stop() == 0);
}

} // namespace lmcache_copies_test
