#include "tests/catch.hpp"
#include "workload/replay/report.hpp"
#include "workload/replay/text_table.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace replay_report_test {

namespace {

using namespace troupe;
using namespace troupe::replay;
using namespace std::chrono_literals;

replay_report example() {
  replay_report r;
  r.requests = 12'031;
  r.blocks = 288'500;
  r.hit_blocks = 105'710;
  r.loaded_pages = 105'710;
  r.saved_pages = 182'790;
  r.loaded_from_disk = 5'710;
  r.loaded_bytes = 105'710ULL << 16U;
  r.saved_bytes = 182'790ULL << 16U;
  r.seconds = 83.25;
  r.load_gbps = 3.5;
  r.save_gbps = 2.25;
  r.lookup_us = {120.5, 900, 12'000};
  r.load_us = {1'500, 9'000, 20'000};
  r.save_us = {2'500, 19'000, 200'000};
  return r;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("replay report: the JSON report has exactly the documented keys", "[replay]") {
  const auto json = nlohmann::ordered_json::parse(to_json(example()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items())
    keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"requests",
                                         "blocks",
                                         "hit_blocks",
                                         "hit_ratio",
                                         "loaded_pages",
                                         "saved_pages",
                                         "loaded_from_memory",
                                         "loaded_from_disk",
                                         "loaded_bytes",
                                         "saved_bytes",
                                         "verify_failures",
                                         "load_failures",
                                         "save_failures",
                                         "load_failure_codes",
                                         "save_failure_codes",
                                         "evicted_keys",
                                         "seconds",
                                         "load_gbps",
                                         "save_gbps",
                                         "lookup_us",
                                         "load_us",
                                         "save_us"});
  CHECK(json["hit_blocks"] == 105'710);
  CHECK(json["loaded_from_memory"] == 100'000);
  CHECK(json["loaded_from_disk"] == 5'710);
  CHECK(json["hit_ratio"].get<double>() > 0.3664);
  CHECK(json["hit_ratio"].get<double>() < 0.3665);
  CHECK(json["loaded_bytes"] == 105'710ULL << 16U);
  for (const auto* name : {"lookup_us", "load_us", "save_us"}) {
    CHECK(json[name].size() == 3);
    CHECK(json[name].contains("p50"));
    CHECK(json[name].contains("p99"));
    CHECK(json[name].contains("max"));
  }
  CHECK(json["lookup_us"]["p50"] == 120.5);
  CHECK(!contains(to_json(example()), "\n"));
}

TEST_CASE("replay report: a report of a transfer without comparison says so and claims nothing about bytes",
          "[replay]") {
  auto r = example();
  r.compared = false;
  CHECK(nlohmann::json::parse(to_json(r))["compared"] == false);
  CHECK(!contains(verdict(r), "Every byte was right"));
  CHECK(contains(verdict(r), "not compared"));
}

TEST_CASE("replay report: a report of transfers to a GPU states their share of a plain copy", "[replay]") {
  auto r = example();
  r.together_gbps = 5;
  r.plain_copy = plain_copy_pace{7, 4.5, 10};
  const auto json = nlohmann::json::parse(to_json(r))["plain_copy_gbps"];
  CHECK(json == nlohmann::json{{"to_device", 7.0}, {"to_host", 4.5}, {"both", 10.0}, {"together", 5.0}});
  CHECK(contains(to_table(r, "trace"), "\n  A plain copy makes to the GPU 7.0 GB/s (0.500), from it 4.5 GB/s (0.500), "
                                       "both at once 10.0 GB/s (0.500).\n"));
  r.saved_bytes = 0;
  CHECK(contains(to_table(r, "trace"), "\n  A plain copy makes to the GPU 7.0 GB/s (0.500).\n"));
  r.loaded_bytes = 0;
  CHECK_FALSE(contains(to_table(r, "trace"), "plain copy"));
}

TEST_CASE("replay report: a report of nothing or with invalid times is still valid JSON with numbers", "[replay]") {
  replay_report r;
  r.load_gbps = std::numeric_limits<double>::infinity();
  r.seconds = std::numeric_limits<double>::quiet_NaN();
  r.save_us.max = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(to_json(r));
  CHECK(json["hit_ratio"] == 0.0);
  CHECK(json["load_gbps"] == 0.0);
  CHECK(json["seconds"] == 0.0);
  CHECK(json["save_us"]["max"] == 0.0);
  CHECK(!to_table(r, "nothing").empty());
}

TEST_CASE("replay report: the verdict states what happened to the bytes", "[replay]") {
  auto r = example();
  CHECK(r.clean());
  CHECK(verdict(r) == "Every byte was right: 105,710 pages loaded and compared, 6.45 GiB in all.");
  r.load_failures = 1;
  r.save_failures = 2;
  CHECK(!r.clean());
  CHECK(contains(verdict(r), "1 page could not be loaded"));
  CHECK(contains(verdict(r), "2 pages could not be saved."));
  r.load_failure_codes = {{errc::corrupt, 1}};
  r.save_failure_codes = {{errc::full, 1}, {errc::timeout, 1}};
  CHECK(contains(verdict(r), "1 page could not be loaded and counted as missing (1 corrupt)."));
  CHECK(contains(verdict(r), "2 pages could not be saved (1 full, 1 timeout)."));
  const auto json = nlohmann::json::parse(to_json(r));
  CHECK(json["load_failure_codes"] == nlohmann::json{{"corrupt", 1}});
  CHECK(json["save_failure_codes"] == nlohmann::json{{"full", 1}, {"timeout", 1}});
  CHECK(nlohmann::json::parse(to_json(example()))["save_failure_codes"] == nlohmann::json::object());
  r.verify_failures = 3;
  CHECK(contains(verdict(r), "WRONG BYTES in 3 of 105,710 pages"));
  CHECK(!contains(verdict(r), "Every byte was right"));
  // Nothing compared is no success.
  CHECK(!contains(verdict(replay_report{}), "Every byte was right"));
}

TEST_CASE("replay report: the table is aligned and in customary units", "[replay]") {
  auto r = example();
  const auto text = to_table(r, "conversation_trace.jsonl");
  INFO(text);
  CHECK(contains(text, "conversation_trace.jsonl: 12,031 requests in 83.2 s"));
  CHECK(contains(text, "105,710 of 288,500 blocks were found (36.6 %); nothing was evicted"));
  CHECK(contains(text, "of the pages loaded, 100,000 were in memory and 5,710 on disk (5.4 %)"));
  CHECK(contains(text, "120 µs"));
  CHECK(contains(text, "6.45 GiB"));
  CHECK(contains(text, verdict(r)));
  std::vector<std::size_t> widths;
  for (const auto& line : lines_of(text))
    if (contains(line, "p50") || contains(line, "  lookup ") || contains(line, "  load ") || contains(line, "  save "))
      widths.push_back(display_width(line));
  REQUIRE(widths.size() == 4);
  CHECK(std::count(widths.begin(), widths.end(), widths[0]) == 4);
  r.evicted_keys = 1234;
  CHECK(contains(to_table(r, "x"), "1,234 keys were evicted"));
}

TEST_CASE("replay report: numbers are printed in customary units", "[replay]") {
  CHECK(human_count(0) == "0");
  CHECK(human_count(999) == "999");
  CHECK(human_count(1000) == "1,000");
  CHECK(human_count(1234567) == "1,234,567");
  CHECK(human_count(~std::uint64_t{0}) == "18,446,744,073,709,551,615");
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1024) == "1.00 KiB");
  CHECK(human_bytes((1U << 20U) - 1) == "1.00 MiB");
  CHECK(human_bytes(65536) == "64.0 KiB");
  CHECK(human_bytes(~std::uint64_t{0}) == "16.0 EiB");
  CHECK(human_time(0ns) == "0 ns");
  CHECK(human_time(999ns) == "999 ns");
  CHECK(human_time(1000ns) == "1.00 µs");
  CHECK(human_time(999'900ns) == "1.00 ms");
  CHECK(human_time(1500ms) == "1.50 s");
  CHECK(human_time(119s) == "119 s");
  CHECK(human_time(125s) == "2 min 05 s");
  CHECK(human_time(3h + 7min) == "3 h 07 min");
  CHECK(human_percent(0.36643) == "36.6 %");
  CHECK(gigabytes_per_second(3'000'000'000, 2s) == 1.5);
  CHECK(gigabytes_per_second(1, 0s) == 0.0);
  CHECK(display_width("µs") == 2);
}

TEST_CASE("replay report: a text table handles short and long rows", "[replay]") {
  text_table table({"name", "µs"});
  table.row({"a"});
  table.row({"longer", "12", "dropped"});
  CHECK(table.str() == "  name    µs\n  a\n  longer  12\n");
  CHECK(table.str(0) == "name    µs\na\nlonger  12\n");
}

TEST_CASE("replay report: progress is one line, at any point", "[replay]") {
  const auto line = progress_line({6'000, 12'000, 100, 37, 3'000'000'000, 1'000'000'000, 0, 10s});
  CHECK(line == "[############............]  50 %  6,000 of 12,000 requests  10 s left  37.0 % of blocks found  "
                "load 0.30 GB/s  save 0.10 GB/s");
  CHECK(contains(progress_line({1, 3, 0, 0, 0, 0, 2, 1s}), "2 pages failed"));
  for (const auto& p : {replay_progress{}, replay_progress{0, 5, 0, 0, 0, 0, 0, 0s},
                        replay_progress{5, 5, 1, 1, 1, 1, 0, 1h}, replay_progress{7, 5, 1, 1, 1, 1, 0, 1h}}) {
    const auto text = progress_line(p);
    INFO(text);
    CHECK(!contains(text, "\n"));
    CHECK(!contains(text, "nan"));
    CHECK(!contains(text, "inf"));
    CHECK(!contains(text, "left"));
  }
  CHECK(contains(progress_line({1, 1000, 1, 1, 1, 1, 0, 1s}), "16 min 39 s left"));
  // It never shows 100 % before the end.
  CHECK(contains(progress_line({9'999, 10'000, 1, 1, 1, 1, 0, 1s}), " 99 %"));
}

TEST_CASE(
    "replay report: progress fits into any width: the least important parts are dropped, and the bar takes the rest",
    "[replay]") {
  const replay_progress p{6'000, 12'000, 100, 37, 3'000'000'000, 1'000'000'000, 2, 10s};
  CHECK(progress_line(p, 159) == "[############............]  50 %  6,000 of 12,000 requests  10 s left"
                                 "  2 pages failed  37.0 % of blocks found  load 0.30 GB/s  save 0.10 GB/s");
  CHECK(progress_line(p, 109) == "[####....]  50 %  6,000 of 12,000 requests  10 s left  2 pages failed"
                                 "  37.0 % of blocks found  load 0.30 GB/s");
  CHECK(progress_line(p, 79) == "[#########.........]  50 %  6,000 of 12,000 requests  10 s left"
                                "  2 pages failed");
  CHECK(progress_line(p, 19) == "[#####......]  50 %");
  CHECK(progress_line(p, 5) == " 50 %");
  for (std::size_t columns = 5; columns < 200; ++columns) {
    INFO(columns);
    CHECK(display_width(progress_line(p, columns)) <= columns);
  }
}

TEST_CASE("replay report: text is truncated between characters", "[replay]") {
  CHECK(fitting("120 µs", 99) == "120 µs");
  CHECK(fitting("120 µs", 5) == "120 µ");
  CHECK(fitting("120 µs", 4) == "120 ");
  CHECK(fitting("120 µs", 0).empty());
}

TEST_CASE("replay report: percentiles are exact by nearest rank", "[replay]") {
  latency_samples samples;
  CHECK(samples.percentile(50) == 0ns);
  CHECK(samples.summary().max == 0.0);
  samples.record(7us);
  for (const auto percent : {0.0, 50.0, 99.0, 100.0})
    CHECK(samples.percentile(percent) == 7us);
  samples.record(-5ns);
  CHECK(samples.percentile(50) == 0ns);
  CHECK(samples.percentile(50.1) == 7us);
  CHECK(samples.size() == 2);

  latency_samples hundred;
  std::vector<int> values(100);
  for (int i = 0; i < 100; ++i)
    values[static_cast<std::size_t>(i)] = i + 1;
  std::shuffle(values.begin(), values.end(), std::mt19937(1));
  for (const auto value : values)
    hundred.record(std::chrono::microseconds(value));
  for (int percent = 1; percent <= 100; ++percent)
    CHECK(hundred.percentile(percent) == std::chrono::microseconds(percent));
  CHECK(hundred.percentile(99.5) == 100us);
  CHECK(hundred.percentile(-3) == 1us);
  CHECK(hundred.percentile(300) == 100us);
  CHECK(hundred.summary().p50 == 50.0);
  CHECK(hundred.summary().p99 == 99.0);
  CHECK(hundred.summary().max == 100.0);
  // Still right when samples follow after a question.
  hundred.record(1ns);
  CHECK(hundred.percentile(0) == 1ns);
}

TEST_CASE("replay report: busy time counts overlapping activities once", "[replay]") {
  const timestamp zero{};
  busy_time busy;
  busy.end(zero + 1s);
  CHECK(busy.total(zero + 9s) == 0s);
  busy.begin(zero + 10s);
  busy.begin(zero + 11s);
  busy.end(zero + 12s);
  CHECK(busy.total(zero + 13s) == 3s);
  busy.end(zero + 14s);
  CHECK(busy.total(zero + 20s) == 4s);
  busy.begin(zero + 20s);
  busy.end(zero + 21s);
  CHECK(busy.total(zero + 30s) == 5s);
}

TEST_CASE("replay report: busy time counts nothing twice when activities arrive out of order", "[replay]") {
  const timestamp zero{};
  busy_time busy;
  busy.begin(zero + 10s);
  busy.end(zero + 14s);
  // Began before the other one had ended.
  busy.begin(zero + 12s);
  CHECK(busy.total(zero + 15s) == 5s);
  busy.begin(zero + 13s);
  busy.end(zero + 18s);
  busy.end(zero + 16s);
  CHECK(busy.total(zero + 30s) == 8s);
  busy.begin(zero + 17s);
  busy.end(zero + 18s);
  CHECK(busy.total(zero + 30s) == 8s);
}

TEST_CASE("replay report: phases add up and print", "[replay]") {
  phase_times times;
  times.add(phase::read, 2s, 4'000'000'000);
  times.add(phase::read, 2s, 4'000'000'000);
  times.add(phase::lookup, 1s);
  times.add(phase::gather, 5s, 1);
  CHECK(times.time(phase::read) == 4s);
  CHECK(times.bytes(phase::read) == 8'000'000'000);
  CHECK(times.total() == 10s);
  const auto table = to_table(times);
  INFO(table);
  const auto lines = lines_of(table);
  REQUIRE(lines.size() == 4);
  CHECK(contains(lines[1], "lookup"));
  CHECK(contains(lines[1], "10.0 %"));
  CHECK(contains(lines[2], "read"));
  CHECK(contains(lines[2], "2.00"));
  CHECK(contains(lines[2], "40.0 %"));
  CHECK(contains(lines[3], "gather"));
  CHECK(!contains(table, "scatter"));
  CHECK(lines_of(to_table(phase_times{})).size() == 1);
}

} // namespace replay_report_test
