#include "gpu/cuda_page_mover.hpp"
#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <csignal>

namespace engine_replay_test {

/// The connector as an engine drives it: `troupe replay --engine`, and the example of the documentation.

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:10,1024,8,128";
/// Long enough to be in the middle of.
constexpr const char* long_trace = "loogle:60,4096,20,128";

arguments operator+(arguments a, const arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

outcome run_example(const arguments& what) {
  launch how;
  how.arguments = arguments{TROUPE_EXAMPLE_ENGINE} + what;
  return run(how);
}

/// Properties of every engine replay, whatever happened to its node and its requests.
void check_right(const replay_outcome& x) {
  INFO(x.err);
  REQUIRE(x.report.is_object());
  INFO(x.report.dump());
  CHECK(x.code == 0);
  CHECK(x.count("wrong_tokens") == 0);
  CHECK(x.report.at("violations").empty());
  CHECK(x.count("compared_tokens") > 0);
}

} // namespace

TEST_CASE("engine replay: an engine loads its saved pages through its connector in every geometry") {
  const scratch_directory scratch;
  const auto ranks = GENERATE(1U, 2U, 3U);
  const auto* blocks_per_page = GENERATE("1", "4");
  INFO(ranks << " ranks, " << blocks_per_page << " blocks a page");
  const auto x = run_replay({"--engine", "--trace", small_trace, "--page-bytes", "65536", "--ranks",
                             std::to_string(ranks), "--blocks-per-page", blocks_per_page},
                            scratch.path());
  check_right(x);
  CHECK(x.count("requests") == 80);
  CHECK(x.count("external_tokens") > 0);
  CHECK(x.count("loads_failed") == 0);
  CHECK(x.count("failed_save_tasks") == 0);
  CHECK(x.count("loaded_bytes") >= x.count("loads") * ranks * 65536);
  CHECK(entries(scratch.path()).empty());
}

TEST_CASE("engine replay: a second engine finds all pages of the first one and leaves nothing behind") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2, .slots = 2048};
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)));
  const arguments how{"--engine", "--attach", node.address(), "--trace", small_trace};
  check_right(run_replay(how));
  const auto after_first = node.wait_until_quiesced();
  CHECK(after_first.leases == 0);
  CHECK(after_first.reservations == 0);
  const auto second = run_replay(how);
  check_right(second);
  // All full pages of all prompts come from one cache or the other; only the last token of each prompt and outputs are
  // computed.
  CHECK(second.count("external_tokens") + second.count("prefix_cache_tokens") ==
        second.count("prompt_tokens") - second.count("requests"));
  const auto rest = node.wait_until_quiesced();
  CHECK(rest.leases == 0);
  CHECK(rest.keys >= after_first.keys);
  CHECK(node.stop() == 0);
}

TEST_CASE("engine replay: an engine loads its saved pages within its steps") {
  const scratch_directory scratch;
  const auto x = run_replay({"--engine", "--synchronous-loads", "--trace", small_trace, "--page-bytes", "65536",
                             "--ranks", "2", "--blocks-per-page", "2"},
                            scratch.path());
  check_right(x);
  CHECK(x.count("requests") == 80);
  CHECK(x.count("external_tokens") > 0);
  CHECK(x.count("loads_failed") == 0);
}

TEST_CASE("engine faults: damaged pages of synchronous loads cost only work") {
  const scratch_directory scratch;
  const auto x = run_replay({"--engine", "--synchronous-loads", "--inject-faults", "2", "--trace",
                             "loogle:40,2048,15,128", "--page-bytes", "16384", "--ranks", "2", "--concurrency", "8",
                             "--set", "memory.bytes=" + std::to_string(little_memory)},
                            scratch.path());
  check_right(x);
  CHECK(x.count("requests") == 600);
  CHECK(x.count("damaged_pages") > 0);
  CHECK(x.count("loads_failed") > 0);
}

TEST_CASE("engine faults: aborts, preemptions and damaged pages cost only work") {
  const scratch_directory scratch;
  const auto* seed = GENERATE("1", "2");
  const auto* blocks_per_page = GENERATE("1", "2");
  INFO("seed " << seed);
  const auto x = run_replay({"--engine", "--inject-faults", seed, "--trace", "loogle:40,2048,15,128", "--page-bytes",
                             "16384", "--ranks", "2", "--concurrency", "8", "--blocks-per-page", blocks_per_page,
                             // Damage is done to slabs, and is found by readers of them.
                             "--set", "memory.bytes=" + std::to_string(little_memory)},
                            scratch.path());
  check_right(x);
  CHECK(x.count("requests") == 600);
  CHECK(x.count("requests_aborted") > 0);
  CHECK(x.count("preemptions") > 0);
  CHECK(x.count("damaged_pages") > 0);
  CHECK(x.count("loads_failed") > 0);
}

TEST_CASE("engine faults: a node that is killed and restarted costs an engine only hits") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2, .slots = 4096};
  const auto config = write_config(scratch.path(), node_config(scratch.path(), shape));
  std::optional<serving_node> node(std::in_place, config);
  const auto port = std::to_string(node->port());
  // So long that the engine, which does not wait for a node, is still running when the last one is back.
  const arguments how{"--engine", "--inject-faults",       "7", "--attach", node->address(),
                      "--trace",  "loogle:360,4096,20,128"};
  process client(replay_command(how));
  for (int round = 0; round < 3; ++round) {
    INFO("round " << round);
    node->wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 100; });
    node->program().kill();
    node.emplace(config, arguments{"--set", "actors.port=" + port});
  }
  const auto x = result_of(client);
  check_right(x);
  CHECK(x.count("requests") == 7200);
  const auto rest = node->wait_until_quiesced();
  CHECK(rest.leases == 0);
  CHECK(node->stop() == 0);
}

TEST_CASE("engine faults: a killed engine leaves nothing behind and the next one loads correct pages") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2, .slots = 4096};
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)));
  const arguments how{"--engine", "--attach", node.address(), "--trace", long_trace};
  for (const auto keys : {100U, 300U, 600U}) {
    process client(replay_command(how));
    node.wait_for_statistics([keys](const auto& x) { return x.clients > 0 && x.keys > keys; });
    client.kill();
    const auto rest = node.wait_until_quiesced();
    CHECK(rest.leases == 0);
    CHECK(rest.reservations == 0);
  }
  const auto x = run_replay(how);
  check_right(x);
  CHECK(x.count("requests") == 1200);
  CHECK(node.stop() == 0);
}

TEST_CASE("engine faults: an engine without its node computes all tokens itself") {
  const scratch_directory scratch;
  std::optional<serving_node> node(std::in_place, write_config(scratch.path(), node_config(scratch.path())));
  process client(replay_command({"--engine", "--attach", node->address(), "--trace", long_trace}));
  node->wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 100; });
  node->program().kill();
  const auto x = result_of(client);
  check_right(x);
  CHECK(x.count("requests") == 1200);
}

TEST_CASE("C-3: an engine connects to the configured node and errors name it", "[hazards]") {
  const auto x = run_replay({"--engine", "--attach", "127.0.0.1:1", "--attach-limit", "1", "--trace", small_trace});
  CHECK(x.code == 1);
  CHECK(x.err.find("127.0.0.1:1") != std::string::npos);
}

TEST_CASE("C-13: SIGINT ends an engine replay cleanly", "[hazards]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), {.slots = 8192})));
  process client(replay_command({"--engine", "--attach", node.address(), "--trace", endless_trace}));
  node.wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 100; });
  client.send(SIGINT);
  const auto x = result_of(client);
  INFO(x.err);
  CHECK(x.code == 128 + SIGINT);
  CHECK(x.err.find("interrupted after") != std::string::npos);
  CHECK(x.count("wrong_tokens") == 0);
  CHECK(x.report.at("violations").empty());
  const auto rest = node.wait_until_quiesced();
  CHECK(rest.leases == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("engine replay: invalid options of an engine replay are refused") {
  const scratch_directory scratch;
  const arguments how{"--engine", "--trace", small_trace, "--page-bytes", "4096"};
  const auto refused = [&](const arguments& more, const char* text) {
    const auto x = run_replay(how + more, scratch.path());
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.err.find(text) != std::string::npos);
  };
  refused({"--blocks-per-page", "3"}, "--blocks-per-page");
  refused({"--kv-blocks", "2"}, "--kv-blocks");
  refused({"--transfer-only"}, "--transfer-only");
  const auto alone = run_replay({"--trace", small_trace, "--kv-blocks", "100"}, scratch.path());
  CHECK(alone.code == 2);
  CHECK(alone.err.find("--engine") != std::string::npos);
}

TEST_CASE("engine replay: a replay on GPU memory reports a missing GPU") {
  if (troupe::cuda_devices())
    return;
  const scratch_directory scratch;
  const auto x =
      run_replay({"--engine", "--trace", small_trace, "--page-bytes", "4096", "--device", "cuda"}, scratch.path());
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("unsupported") != std::string::npos);
}

TEST_CASE("engine replay: the example engine of the documentation saves and loads correct pages") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path(), {.ranks = 2, .page_bytes = 65536, .slots = 64});
  config["namespaces"][0]["kv_cache"] = {{"layers", 2},     {"parts", 2},         {"heads", 2},
                                         {"head_size", 64}, {"element_bytes", 2}, {"block_tokens", 64}};
  serving_node node(write_config(scratch.path(), config));
  for (int i = 0; i < 2; ++i) {
    const auto x = run_example({node.address()});
    INFO(x.out << x.err);
    CHECK(x.code == 0);
    CHECK(x.out.find("second: 256 of 266 tokens are in the cache") != std::string::npos);
    CHECK(x.out.find("every byte is right") != std::string::npos);
  }
  CHECK(node.stop() == 0);
  const auto without = run_example({});
  CHECK(without.code == 2);
}

} // namespace engine_replay_test
