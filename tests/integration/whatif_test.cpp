#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

namespace whatif_test {

using namespace troupe::test;

TEST_CASE("whatif says what a replay on a node of that size then finds") {
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
    // What goes to memory and disk takes its time, and a node does not evict what is being written.
    const auto hits = policy.at("hit_blocks").at(i).get<double>();
    const auto found = static_cast<double>(played.count("hit_blocks"));
    CHECK(std::abs(hits - found) <= (i == 0 ? 0.05 * hits : 0));
  }
  std::ifstream svg(scratch / "curve.svg");
  std::ostringstream text;
  text << svg.rdbuf();
  CHECK(text.str().starts_with("<svg "));
}

TEST_CASE("whatif prints a table, and refuses what makes no sense") {
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

} // namespace whatif_test
