// kill -9, again and again, over all ways of making a namespace and all durabilities, with restarts that change the
// config in between.

#include "tests/catch.hpp"
#include "tests/integration/crash_engines.hpp"
#include "tests/integration/support.hpp"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <thread>

namespace crash_all_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

json config_of(const std::filesystem::path& directory, const node_settings& now) {
  auto out = node_config(directory, {2, 4096, 256});
  if (!now.own) {
    out.erase("namespaces");
    out.erase("storage");
  }
  // A check looks up all keys at once.
  out["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}, {"limits", {{"leased_share", 1.0}}}};
  out["hf3fs"] = {{"vllm", now.vllm},
                  {"sglang", now.sglang},
                  {"namespace", now.ns},
                  {"protect_locations", "1 ms"},
                  {"reservation_deadline", "1 min"}};
  out["registry"] = {{"shards", 3}, {"durability", now.durability}, {"sync_interval", "50 ms"}};
  out["log_level"] = "warn";
  return out;
}

int http_port(const serving_node& node) {
  return json::parse(node.ready_line()).at("http").at("port").get<int>();
}

/// Pages in slabs of the node, through a client of the node: a replay saves them, and compares what it loads.
struct own_pages {
  /// A replay has saved all, and no run without a durable index came since.
  bool complete = false;

  void play(const serving_node& node) {
    const auto x = run_replay({"--attach", node.address(), "--trace", "loogle:3,2048,2,128", "--concurrency", "2"});
    INFO(x.err);
    CHECK(x.count("verify_failures") == 0);
    if (complete) {
      CHECK(x.count("hit_blocks") == x.count("blocks"));
      CHECK(x.count("load_failures") == 0);
      CHECK(x.count("saved_pages") == 0);
    }
    complete = x.code == 0;
  }
};

node_settings next_settings(const node_settings& before, std::mt19937& random) {
  auto out = before;
  const auto one_in = [&](std::uint32_t n) { return random() % n == 0; };
  if (!before.durable() || one_in(3))
    out.durability = one_in(2) ? "strict" : "relaxed";
  if (one_in(8))
    out.durability = "none";
  if (one_in(6))
    out.ns = before.ns == "hf3fs" ? "other" : "hf3fs";
  out.vllm = before.vllm ? !one_in(8) : !one_in(3);
  out.sglang = before.sglang ? !one_in(8) : !one_in(3);
  out.own = before.own ? !one_in(6) : !one_in(3);
  return out;
}

/// A start that is killed before it serves, or soon after: with the settings of the run before, nothing may be lost.
void start_and_kill(const std::filesystem::path& config, std::mt19937& random) {
  process program(program_with({"serve", "--config", config.string()}));
  std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
  program.kill();
}

/// A number that the environment may give in place of the usual one.
std::uint64_t from_environment(const char* name, std::uint64_t usual) {
  const auto* wanted = std::getenv(name);
  return wanted == nullptr ? usual : std::stoull(wanted);
}

struct loop {
  explicit loop(std::uint32_t seed) : random(seed) {}

  /// One run: start, compare with the engines' records, use, kill.
  void run(std::size_t round) {
    const auto now = round == 0 ? node_settings{} : next_settings(before, random);
    INFO("round " << round << ": " << now.describe());
    const auto config = write_config(directory.path(), config_of(directory.path(), now));
    serving_node node(config);
    for (const auto& engine : engines) {
      if (engine->place(now).empty())
        continue;
      node_caller caller(http_port(node));
      const auto wrong = engine->check(caller, round > 0 && engine->kept(before, now));
      INFO(node.log_so_far());
      REQUIRE(wrong == "");
    }
    pages.complete = pages.complete && now.durable();
    if (now.own && random() % 3 == 0)
      pages.play(node);
    std::vector<std::thread> threads;
    for (const auto& engine : engines)
      if (!engine->place(now).empty())
        threads.emplace_back([&, e = engine.get(), own_seed = static_cast<std::uint32_t>(random())] {
          node_caller caller(http_port(node));
          std::mt19937 own(own_seed);
          e->work(caller, own);
        });
    // The moment is random; nothing depends on how far the engines have come.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    node.program().kill();
    for (auto& x : threads)
      x.join();
    // A run without a durable index loses its pages when it ends.
    pages.complete = pages.complete && now.durable();
    if (now.durable() && random() % 4 == 0)
      start_and_kill(config, random);
    before = now;
  }

  scratch_directory directory;
  std::mt19937 random;
  std::vector<std::unique_ptr<crash_engine>> engines = all_crash_engines();
  own_pages pages;
  node_settings before;
};

} // namespace

TEST_CASE("crash all: kill -9 and changed settings lose no answered commit and mix up no bytes", "[crash]") {
  const auto seed = static_cast<std::uint32_t>(from_environment("TROUPE_CRASH_SEED", std::random_device{}()));
  INFO("TROUPE_CRASH_SEED=" << seed);
  loop all(seed);
  const auto rounds = from_environment("TROUPE_CRASH_ROUNDS", 30);
  for (std::size_t round = 0; round < rounds; ++round)
    all.run(round);
  std::uint64_t remade = 0;
  for (const auto& engine : all.engines) {
    INFO(engine->name());
    CHECK(engine->committed() > 0);
    CHECK(engine->found() > 0);
    remade += engine->remade();
  }
  CHECK(remade > 0);
}

} // namespace crash_all_test
