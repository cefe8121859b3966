#include "actors/node/metrics/metrics_state.hpp"
#include "tests/catch.hpp"

#include <sstream>
#include <string>

namespace metrics_state_test {

using namespace troupe;

namespace {

latency_batch samples(std::uint32_t kind, std::uint32_t items, std::uint64_t nanoseconds, std::size_t times = 1) {
  return {std::vector<latency_sample>(times, {kind, items, nanoseconds})};
}

/// The value of the line that begins with `series`, or "" where there is none.
std::string value_of(const std::string& page, const std::string& series) {
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(series + " "))
      return line.substr(series.size() + 1);
  return {};
}

std::string count_of(const std::string& page, std::string_view kind) {
  return value_of(page, "troupe_request_seconds_count{node=\"n1\",kind=\"" + std::string(kind) + "\"}");
}

} // namespace

TEST_CASE("metrics: the exposition has every kind from the start", "[metrics_state]") {
  const metrics_state state("n1");
  const auto page = state.render();
  CHECK(page.find("# TYPE troupe_request_seconds histogram") != std::string::npos);
  CHECK(page.find("# HELP troupe_request_seconds ") != std::string::npos);
  for (std::uint32_t i = 0; i < request_kind_count; ++i) {
    const auto kind = to_string(static_cast<request_kind>(i));
    INFO(kind);
    CHECK(count_of(page, kind) == "0");
  }
  CHECK(to_string(static_cast<request_kind>(request_kind_count)) == "unknown");
}

TEST_CASE("metrics: samples go to the histogram and the counter of their kind", "[metrics_state]") {
  metrics_state state("n1");
  state.observe(samples(static_cast<std::uint32_t>(request_kind::match), 512, 3'000));
  state.observe(samples(static_cast<std::uint32_t>(request_kind::match), 100, 2'000'000'000));
  state.observe(samples(static_cast<std::uint32_t>(request_kind::write), 7, 1'000'000, 3));
  state.observe({});
  const auto page = state.render();
  CHECK(count_of(page, "match") == "2");
  CHECK(count_of(page, "write") == "3");
  CHECK(count_of(page, "read") == "0");
  CHECK(value_of(page, R"(troupe_request_items_total{node="n1",kind="match"})").starts_with("612"));
  CHECK(value_of(page, R"(troupe_request_items_total{node="n1",kind="write"})").starts_with("21"));
  CHECK(std::stod(value_of(page, R"(troupe_request_seconds_sum{node="n1",kind="write"})")) == 0.003);
  CHECK(value_of(page, R"(troupe_request_seconds_bucket{node="n1",kind="match",le="+Inf"})") == "2");
}

TEST_CASE("metrics: kinds of another version are counted as unknown", "[metrics_state]") {
  metrics_state state("n1");
  state.observe(samples(request_kind_count, 1, 1));
  state.observe(samples(0xffffffff, 0xffffffff, ~std::uint64_t{0}, 4));
  state.observe(samples(0, 0xffffffff, ~std::uint64_t{0}));
  const auto page = state.render();
  CHECK(value_of(page, R"(troupe_unknown_samples_total{node="n1"})").starts_with("5"));
  CHECK(count_of(page, "match") == "1");
}

TEST_CASE("metrics: gauges are set, not added, one per set of labels", "[metrics_state]") {
  metrics_state state("n1");
  for (const double value : {3.0, 12.0})
    state.set("troupe_slots", "Slots.", {{"rank", "0"}, {"state", "free"}}, value);
  state.set("troupe_slots", "Slots.", {{"rank", "1"}, {"state", "free"}}, 5);
  state.set("troupe_clients", "Clients.", {}, 2);
  const auto page = state.render();
  CHECK(value_of(page, R"(troupe_slots{node="n1",rank="0",state="free"})").starts_with("12"));
  CHECK(value_of(page, R"(troupe_slots{node="n1",rank="1",state="free"})").starts_with("5"));
  CHECK(value_of(page, R"(troupe_clients{node="n1"})").starts_with("2"));
  std::size_t families = 0;
  for (auto at = page.find("# TYPE troupe_slots "); at != std::string::npos;
       at = page.find("# TYPE troupe_slots ", at + 1))
    ++families;
  CHECK(families == 1);
}

TEST_CASE("metrics: names with quotes and line breaks do not break the exposition", "[metrics_state]") {
  metrics_state state("n\"1\n\\");
  state.set("troupe_clients", "Clients.", {{"namespace", "a\"b\nc"}}, 1);
  const auto page = state.render();
  CHECK(page.find("namespace=\"a\\\"b\\nc\"") != std::string::npos);
  CHECK(page.find("node=\"n\\\"1\\n\\\\\"") != std::string::npos);
}

} // namespace metrics_state_test
