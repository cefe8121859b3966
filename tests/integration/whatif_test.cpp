#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

namespace whatif_test {

using namespace troupe::test;

TEST_CASE("whatif: whatif predicts the hits of a replay on a node of that size") {
  const scratch_directory scratch;
  const std::string trace = "mixed:2,120,60,5,15,20";
  const auto supposed = run(program_with({"whatif", "--trace", trace, "--capacity", "400,100000", "--policy", "reuse",
                                          "--json", "--quiet", "--svg", (scratch / "curve.svg").string()}));
  INFO(supposed.err);
  REQUIRE(supposed.code == 0);
  const auto report = nlohmann::json::parse(supposed.out);
  const auto& policy = report.at("policies").at(0);
  CHECK(policy.at("name") == "reuse");
  for (const std::size_t i : {0U, 1U}) {
    const auto capacity = i == 0 ? "400" : "100000";
    INFO(capacity);
    const auto played = run_replay({"--trace", trace, "--capacity-pages", capacity, "--page-bytes", "4096", "--ranks",
                                    "1", "--concurrency", "1", "--set", "registry.eviction=reuse"},
                                   scratch.path());
    CHECK(played.code == 0);
    CHECK(played.count("blocks") == report.at("blocks"));
    // Transfers to memory and disk take time, and a node does not evict pages that are being written. New keys rest,
    // and which are new when room is needed depends on that time as well.
    const auto hits = policy.at("hit_blocks").at(i).get<double>();
    const auto found = static_cast<double>(played.count("hit_blocks"));
    CHECK(std::abs(hits - found) <= (i == 0 ? 0.08 * hits : 0));
  }
  std::ifstream svg(scratch / "curve.svg");
  std::ostringstream text;
  text << svg.rdbuf();
  CHECK(text.str().starts_with("<svg "));
}

TEST_CASE("whatif: whatif handles prompts that are longer than the cache", "[whatif]") {
  const scratch_directory scratch;
  const arguments sample{"--trace", TROUPE_SOURCE_DIR "/traces/sample.jsonl"};
  for (const auto& from : {sample, arguments{"--trace", "loogle:2,20480,10,512", "--capacity", "16"}}) {
    arguments what{"whatif", "--quiet", "--json", "--svg", (scratch / "curve.svg").string()};
    what.insert(what.end(), from.begin(), from.end());
    const auto x = run(program_with(what));
    INFO(x.err);
    REQUIRE(x.code == 0);
    CHECK(nlohmann::json::parse(x.out).at("policies").size() == 4);
  }
}

TEST_CASE("whatif: whatif plays all ranks of an engine", "[whatif]") {
  const auto played = run(program_with({"whatif", "--trace", "mixed:2,120,60,5,15,20", "--ranks", "4", "--capacity",
                                        "400", "--policy", "reuse", "--json", "--quiet"}));
  INFO(played.err);
  REQUIRE(played.code == 0);
  const auto report = nlohmann::json::parse(played.out);
  CHECK(report.at("ranks") == 4);
  CHECK(report.at("policies").at(0).at("hit_blocks").at(0) > 0);
  const auto table = run(program_with({"whatif", "--trace", "loogle:2,1024,3,128", "--ranks", "4", "--quiet"}));
  CHECK(table.out.find("; each key has a page on each of 4 ranks\n") != std::string::npos);
}

TEST_CASE("whatif: whatif prints a table and refuses invalid options") {
  const auto table = run(program_with({"whatif", "--trace", "loogle:2,1024,3,128", "--quiet"}));
  CHECK(table.code == 0);
  CHECK(table.out.find("knowing the future") != std::string::npos);
  CHECK(table.err.empty());
  for (const arguments& wrong : {arguments{"--capacity", "5"}, arguments{"--capacity", "100,x"},
                                 arguments{"--policy", "fifo"}, arguments{"--trace", "/no/such/trace"}}) {
    arguments all{"whatif", "--quiet"};
    if (wrong.front() != "--trace")
      all.insert(all.end(), {"--trace", "loogle:1"});
    all.insert(all.end(), wrong.begin(), wrong.end());
    const auto x = run(program_with(all));
    CHECK(x.code == 2);
    CHECK(x.out.empty());
    CHECK(x.err.starts_with("troupe whatif: "));
  }
}

TEST_CASE("whatif: a node records its requests and whatif and replay accept the recording") {
  const auto shards = GENERATE("1", "4");
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path()));
  const arguments records{"--set", "registry.record_keys=100000", "--set", std::string("registry.shards=") + shards};
  const std::string trace = "mixed:5,60,60,5,15,20";
  {
    serving_node node(config, records);
    CHECK(run_replay({"--attach", node.address(), "--trace", trace, "--concurrency", "1"}).code == 0);
    CHECK(node.stop() == 0);
  }
  const auto result_with = [&](const arguments& from) {
    arguments what{"whatif", "--quiet", "--json", "--capacity", "200,100000", "--policy", "lru"};
    what.insert(what.end(), from.begin(), from.end());
    const auto x = run(program_with(what));
    INFO(x.err);
    REQUIRE(x.code == 0);
    return nlohmann::json::parse(x.out);
  };
  const auto recorded = result_with({"--record", (scratch / "data").string()});
  const auto asked = result_with({"--trace", trace});
  for (const char* key : {"requests", "blocks", "different_blocks", "repeated_blocks"})
    CHECK(recorded.at(key) == asked.at(key));
  CHECK(recorded.at("policies").at(1).at("hit_blocks") == asked.at("policies").at(1).at("hit_blocks"));
  const auto text = run_replay({"--trace", (scratch / "data/requests.jsonl").string(), "--page-bytes", "4096",
                                "--ranks", "1", "--concurrency", "1"},
                               scratch.path());
  CHECK(text.code == 0);
  CHECK(text.count("hit_blocks") == asked.at("repeated_blocks"));
}

} // namespace whatif_test
