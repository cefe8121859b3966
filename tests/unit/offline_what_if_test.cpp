#include "offline/what_if.hpp"
#include "tests/catch.hpp"
#include "tests/replay_model/expected_hits.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>

namespace offline_what_if_test {

using namespace troupe;
using namespace troupe::offline;

namespace {

replay::trace trace_of(const std::vector<std::vector<std::uint64_t>>& requests) {
  replay::trace out{"test", {}};
  for (const auto& ids : requests)
    out.requests.push_back({out.requests.size(), ids.size(), 1, ids});
  return out;
}

/// The most hits of any choice of kept blocks: all choices are tried.
std::uint64_t best_of_all(const numbered_trace& what, std::size_t capacity) {
  using content = std::set<std::uint32_t>;
  std::function<std::uint64_t(std::size_t, const content&)> best = [&](std::size_t t, const content& there) {
    if (t == what.requests.size())
      return std::uint64_t{0};
    const auto& keys = what.requests[t];
    const auto hits = static_cast<std::uint64_t>(
        std::ranges::find_if_not(keys, [&](auto key) { return there.contains(key); }) - keys.begin());
    content all = there;
    all.insert(keys.begin(), keys.end());
    const std::vector<std::uint32_t> choice(all.begin(), all.end());
    std::uint64_t most = 0;
    for (std::uint32_t kept = 0; kept < (1U << choice.size()); ++kept) {
      content next;
      for (std::size_t i = 0; i < choice.size(); ++i)
        if ((kept >> i & 1U) != 0)
          next.insert(choice[i]);
      if (next.size() == std::min(capacity, choice.size()))
        most = std::max(most, best(t + 1, next));
    }
    return hits + most;
  };
  return best(0, {});
}

const auto silent = [](const std::string&) {};

} // namespace

TEST_CASE("offline what if: equal prefixes have equal numbers, and earlier blocks are counted up to the first gap",
          "[offline]") {
  const auto x = number_trace(trace_of({{1, 2, 3}, {1, 2, 4}, {2, 3}, {1, 5, 3}}));
  CHECK(x.requests == std::vector<std::vector<std::uint32_t>>{{0, 1, 2}, {0, 1, 3}, {4, 5}, {0, 6, 7}});
  CHECK(x.blocks == 11);
  CHECK(x.keys.size() == 8);
  CHECK(x.repeated == 3);
}

TEST_CASE("offline what if: the computed optimum equals that of an exhaustive search", "[offline]") {
  const auto seed = GENERATE(range(0U, 40U));
  std::mt19937 random(seed);
  std::vector<std::vector<std::uint64_t>> requests;
  for (int i = 0; i < 5; ++i) {
    auto& ids = requests.emplace_back();
    for (std::uint32_t k = 0; k < 1 + random() % 2; ++k)
      ids.push_back(random() % 3);
  }
  const auto x = number_trace(trace_of(requests));
  const std::size_t capacity = 1 + random() % 3;
  INFO("seed " << seed << ", capacity " << capacity);
  CHECK(optimal_hits(x, capacity) == best_of_all(x, capacity));
}

TEST_CASE("offline what if: with room for all blocks every policy hits all earlier ones", "[offline]") {
  const auto trace = replay::open_trace("mixed:3,300,60,5,15,20", 64, {}).value();
  const auto all = test::expect_hits(trace.requests);
  what_if_options how;
  how.capacities = {all.unique_blocks + 16};
  how.shards = 3;
  const auto report = what_if(trace, how, silent).value();
  CHECK(report.blocks == all.blocks);
  CHECK(report.different == all.unique_blocks);
  CHECK(report.repeated == all.hit_blocks);
  REQUIRE(report.rows.size() == 4);
  for (const auto& row : report.rows)
    CHECK(row.hits == std::vector{all.hit_blocks});
}

TEST_CASE("offline what if: a prompt larger than the capacity is played to its end", "[offline]") {
  // The head of the second prompt is found and leased, so that not one slot can be granted to its tail.
  std::vector<std::uint64_t> prompt(40);
  std::iota(prompt.begin(), prompt.end(), 1);
  auto longer = prompt;
  for (std::uint64_t id = 100; id < 140; ++id)
    longer.push_back(id);
  const auto trace = trace_of({prompt, longer, prompt, {7, 8}, longer, prompt});
  what_if_options how;
  how.capacities = {16, 17, 20, 39, 40, 41, 80};
  how.shards = GENERATE(1U, 3U);
  SECTION("evicted when needed") {}
  SECTION("evicted ahead") {
    how.low_watermark = 0.05;
    how.high_watermark = 0.1;
  }
  const auto report = what_if(trace, how, silent).value();
  REQUIRE(report.rows.size() == 4);
  const auto& optimum = report.rows.back();
  for (const auto& row : report.rows)
    for (std::size_t i = 0; i < row.hits.size(); ++i)
      CHECK(row.hits[i] <= optimum.hits[i]);
}

TEST_CASE("offline what if: no policy beats the optimum, and more capacity raises it", "[offline]") {
  const auto trace = replay::open_trace("mixed:4,600,60,5,15,20", 64, {}).value();
  what_if_options how;
  how.low_watermark = 0.01;
  how.high_watermark = 0.02;
  const auto report = what_if(trace, how, silent).value();
  CHECK(report.capacities.size() == 6);
  CHECK(std::ranges::is_sorted(report.capacities));
  const auto& optimum = report.rows.back();
  CHECK(optimum.name == what_if_report::optimum);
  CHECK(std::ranges::is_sorted(optimum.hits));
  for (const auto& row : report.rows) {
    REQUIRE(row.hits.size() == report.capacities.size());
    for (std::size_t i = 0; i < row.hits.size(); ++i) {
      INFO(row.name << " with " << report.capacities[i]);
      CHECK(row.hits[i] <= optimum.hits[i]);
    }
  }
  CHECK(report.rows.front().hits.front() > 0);
}

TEST_CASE("offline what if: an invalid policy or capacity is refused", "[offline]") {
  const auto trace = trace_of({{1, 2}});
  what_if_options how;
  how.policies = {"lru", "fifo"};
  CHECK(what_if(trace, how, silent).error().text == "there is no policy 'fifo'; there are lru, s3-fifo, reuse");
  how.policies = {"lru"};
  how.capacities = {15};
  CHECK(what_if(trace, how, silent).error().code == errc::invalid_argument);
}

TEST_CASE("offline what if: a report is written as text, JSON and SVG", "[offline]") {
  const auto trace = trace_of({{1, 2}, {1, 2}, {3}});
  what_if_options how;
  how.capacities = {100, 16, 100};
  how.policies = {"lru"};
  auto report = what_if(trace, how, silent).value();
  CHECK(report.capacities == std::vector<std::uint64_t>{16, 100});
  const auto text = to_text(report);
  CHECK(text.find("3 requests, 5 blocks, 3 of them different; at most 40.0 % can be hits") != std::string::npos);
  CHECK(text.find("knowing the future") != std::string::npos);
  CHECK(to_json(report).find("\"hit_blocks\":[2,2]") != std::string::npos);
  report.trace = "a <trace> & \"more\"";
  const auto svg = to_svg(report);
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find("a &lt;trace> &amp; &quot;more&quot;") != std::string::npos);
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("lru, 100 blocks: 40.0 %") != std::string::npos);
}

} // namespace offline_what_if_test
