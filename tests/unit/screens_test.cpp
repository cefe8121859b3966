#include "cli/screens/cluster_screen.hpp"
#include "cli/screens/status_screen.hpp"
#include "cli/screens/top_screen.hpp"
#include "cli/screens/words.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <string>
#include <vector>

namespace screens_test {

using namespace troupe;
using namespace troupe::cli;
using namespace std::chrono_literals;
using nlohmann::json;

namespace {

json activity(double asked, double found) {
  return {{"seconds", 10.0},
          {"lookups", asked / 10},
          {"asked_keys", asked},
          {"found_keys", found},
          {"hit_ratio", asked > 0 ? json(found / asked) : json()},
          {"evicted_keys", 20},
          {"loaded_bytes", 5e9},
          {"saved_bytes", 1e9},
          {"load_gbps", 0.5},
          {"save_gbps", 0.1},
          {"memory_pages", 90},
          {"disk_pages", 10},
          {"lookup_p50_us", 40.0},
          {"lookup_p99_us", 1500.0}};
}

json rank(std::uint64_t number, std::uint64_t loaded, std::uint64_t live) {
  return {{"rank", number},
          {"kept_by", "node"},
          {"slots", {{"total", 1000}, {"free", 998 - live}, {"reserved", 1}, {"live", live}, {"quarantined", 1}}},
          {"total", {{"loaded_pages", loaded}, {"saved_pages", 0}, {"memory_hits", 0}}},
          {"last_minute", activity(0, 0)}};
}

json ns(const std::string& name, double asked, double found, std::vector<json> ranks) {
  return {{"name", name},
          {"page_bytes", 1'000'000},
          {"keys", 1234},
          {"leases", 2},
          {"total", {{"lookups", asked / 10}, {"asked_keys", asked}, {"found_keys", found}, {"evicted_keys", 0}}},
          {"last_minute", activity(asked, found)},
          {"capacity", {{"keys", 5678}, {"pages", 11356}, {"bytes", 3ULL << 30U}, {"bounded_by", "disk"}}},
          {"ranks", std::move(ranks)}};
}

json node(std::vector<json> namespaces) {
  const json tier{
      {"pages", 12345},   {"bytes", 1ULL << 30U},   {"limit_bytes", 4ULL << 30U}, {"capacity_bytes", 4ULL << 30U},
      {"dirty_pages", 7}, {"memory_only_pages", 21}};
  return {{"node",
           {{"name", "a-node"},
            {"version", "0.1.0"},
            {"commit", "0123abc"},
            {"protocol", 9},
            {"process", 4711},
            {"data_dir", "/srv/troupe"},
            {"now", "2026-01-31T12:34:56Z"},
            {"uptime_s", 7384.0},
            {"durability", "strict"},
            {"memory", "2 MiB huge pages"},
            {"slabs", "2 files direct, io_uring"}}},
          {"health", "healthy"},
          {"ready", true},
          {"warnings", json::array()},
          {"registry", {{"keys", 1300}, {"complete_keys", 1234}, {"leases", 2}, {"reservations", 0}}},
          {"tiers", {{"memory", tier}, {"disk", tier}, {"index", tier}}},
          {"last_minute", activity(100, 58.8)},
          {"namespaces", std::move(namespaces)},
          {"namespaces_omitted", 0},
          {"clients",
           {{"attached", 1},
            {"disconnected", 0},
            {"list",
             {{{"name", "engine\x1b[2J"},
               {"namespace", "chat"},
               {"process", 99},
               {"elsewhere", false},
               {"attached_s", 61.0},
               {"loaded_bytes", 3ULL << 30U},
               {"saved_bytes", 5},
               {"last_minute", activity(0, 0)}}}}}}};
}

json with_warning(json x) {
  x["health"] = "degraded";
  x["warnings"].push_back({{"severity", "failed"},
                           {"reason", "slab_damaged"},
                           {"text", "the slab file /srv/troupe/chat.rank-0.slab was removed: start the node again"},
                           {"runbook", "docs/operations.md#slab_damaged"}});
  return x;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::string joined(const std::vector<screen_line>& lines) {
  std::string out;
  for (const auto& x : lines)
    out += x.text + "\n";
  return out;
}

/// Checks the exact size, also with characters of several bytes.
void check_size(const std::vector<screen_line>& lines, std::size_t columns, std::size_t rows) {
  CHECK(lines.size() == rows);
  for (const auto& x : lines) {
    INFO(x.text);
    CHECK(width_of(x.text) == columns);
  }
}

timestamp at(duration x) {
  return timestamp{} + 1h + x;
}

} // namespace

TEST_CASE("screens: what encoding has saved is shown where pages were encoded", "[screens]") {
  const auto with = [](std::uint64_t payload, std::uint64_t stored) {
    auto x = node({ns("chat", 10, 5, {rank(0, 5, 10), rank(1, 5, 10)})});
    for (auto& r : x["namespaces"][0]["ranks"])
      r["total"] = {{"saved_payload_bytes", payload}, {"saved_stored_bytes", stored}};
    return status_screen(x, 100);
  };
  const auto shown = with(2ULL << 30U, 3ULL << 29U);
  INFO(shown);
  CHECK(has(shown, "4 GiB saved since the start in 3 GiB (75.0 %)"));
  CHECK_FALSE(has(with(2ULL << 30U, 2ULL << 30U), "saved since the start"));
  CHECK_FALSE(has(with(0, 0), "saved since the start"));
}

TEST_CASE("screens: clients of LMCache are shown with their version", "[screens]") {
  auto x = node({});
  CHECK_FALSE(has(status_screen(x, 100), "LMCache"));
  const json good{{"client", 1},        {"process", 4711}, {"name", "VLLM::Worker"}, {"user", 0},
                  {"version", "0.5.7"}, {"requests", 7},   {"malformed", 0},         {"difference", ""}};
  auto bad = good;
  bad["process"] = 0;
  bad["malformed"] = 3;
  bad["difference"] = "ping with 2 payloads";
  x["lmcache"] = {{"connected", 2}, {"clients", {good, bad}}};
  const auto text = status_screen(x, 100);
  CHECK(has(text, "2 clients connected"));
  CHECK(has(text, "client 1, process 4711 (VLLM::Worker), LMCache 0.5.7, 7 requests"));
  CHECK(has(text, "3 refused: ping with 2 payloads"));
}

TEST_CASE("screens: numbers on screens are printed in customary units", "[screens]") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1024) == "1 KiB");
  CHECK(bytes_text(1.25 * 1024 * 1024 * 1024) == "1.25 GiB");
  CHECK(count_text(0) == "0");
  CHECK(count_text(999) == "999");
  CHECK(count_text(1'234'567) == "1,234,567");
  CHECK(rate_text(1250) == "1.25 k/s");
  CHECK(percent_text(0.588) == "58.8 %");
  CHECK(percent_text(std::nullopt) == "-");
  CHECK(micros_text(40) == "40 µs");
  CHECK(micros_text(5300) == "5.3 ms");
  CHECK(micros_text(2.5e6) == "2.50 s");
  CHECK(speed_text(0) == "0 MB/s");
  CHECK(speed_text(1.234) == "1.23 GB/s");
  CHECK(speed_text(0.1) == "0.10 GB/s");
  CHECK(speed_text(0.0123) == "12 MB/s");
  CHECK(speed_text(0.0012) == "1.2 MB/s");
  CHECK(speed_text(0.00002) == "20 kB/s");
  CHECK(span_text(59) == "59 s");
  CHECK(span_text(7384) == "2 h 3 min");
  CHECK(span_text(200000) == "2 d 7 h");
}

TEST_CASE("screens: text is truncated and padded by characters, and wrapped at blanks", "[screens]") {
  CHECK(to_width("abc", 5) == "abc  ");
  CHECK(to_width("abcdef", 3) == "abc");
  CHECK(to_width("▁▂▃▄", 2) == "▁▂");
  CHECK(to_right("ab", 4) == "  ab");
  CHECK(to_name("deepseek-v3-tp8", 12) == "deepseek-v3~");
  CHECK(to_name("chat", 6) == "chat  ");
  // A number stays with its unit.
  CHECK(wrapped("up for 2 s, well", 8) == std::vector<std::string>{"up for", "2 s,", "well"});
  CHECK(wrapped("1.25 GiB", 4) == std::vector<std::string>{"1.25 GiB"});
  CHECK(wrapped("2 sevens", 4) == std::vector<std::string>{"2", "sevens"});
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("a-very-long-word b", 4) == std::vector<std::string>{"a-very-long-word", "b"});
  CHECK(printable("a\x1b[2J\nb") == "a?[2J?b");
}

TEST_CASE("screens: the status screen shows the most important values", "[screens]") {
  const auto text = status_screen(node({ns("chat", 100, 58.8, {rank(0, 5, 500), rank(1, 5, 0)})}), 80);
  INFO(text);
  for (const auto* part :
       {"a-node: healthy\n", "commit 0123abc", "process 4711", "durability: strict", "hit ratio 58.8 %", "p99 1.5 ms",
        "load 0.50 GB/s (90.0 % from memory), save 0.10 GB/s", "12,345 pages", "1 GiB of 4 GiB (25.0 %)", "io_uring",
        "chat", "1,234", "#+x............. 500 of 1,000 slots, 1 reserved, 1 quarantined", "clients      1 attached\n",
        "2 leases", "engine?[2J in chat, process 99, for 1 min, load 0.50 GB/s",
        "  room for 5,678 keys, 3 GiB at most, bounded by disk"})
    CHECK(has(text, part));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    CHECK(width_of(line) <= 80);
}

TEST_CASE("screens: the status screen folds equal ranks and marks a damaged one", "[screens]") {
  std::vector<json> ranks;
  for (std::uint64_t i = 0; i < 8; ++i)
    ranks.push_back(rank(i, 5, 500));
  const auto equal = status_screen(node({ns("chat", 10, 5, ranks)}), 80);
  INFO(equal);
  CHECK(has(equal, "  8 ranks #+x............. 500 of 1,000 slots, 1 reserved, 1 quarantined each\n"));
  CHECK_FALSE(has(equal, "rank 0"));
  ranks[3]["damaged"] = true;
  const auto damaged = status_screen(node({ns("chat", 10, 5, ranks)}), 80);
  CHECK(has(damaged, "  rank 3  #+x............. DAMAGED, 500 of 1,000 slots"));
  CHECK(has(damaged, "  rank 7 "));
  // A wider terminal has a longer bar.
  CHECK(has(status_screen(node({ns("chat", 10, 5, {rank(0, 5, 500)})}), 160), std::string(80, '.')));
}

TEST_CASE("screens: a node without a disk has no pages that wait for it", "[screens]") {
  auto x = node({});
  CHECK(has(status_screen(x, 100), "7 not yet on disk"));
  x["tiers"]["disk"]["capacity_bytes"] = 0;
  const auto text = status_screen(x, 100);
  CHECK_FALSE(has(text, "not yet on disk"));
  CHECK(has(text, "disk         none\n"));
}

namespace {

json peer(const std::string& name, const std::string& state, const std::string& trouble = {}) {
  return {{"node", name},           {"address", name + ".example:7001"},
          {"state", state},         {"lag_us", 220},
          {"trouble", trouble},     {"namespaces", 2},
          {"asked", 1'234'567'890}, {"had", 345'678'901},
          {"late", 12'345},         {"pages", 123'456'789},
          {"bytes", 1.2e12},        {"failed", 1'234'567},
          {"file_pages", 0},        {"served_pages", 4321},
          {"served_bytes", 5e10},   {"learned_keys", 99'999'999}};
}

json cluster_of(std::vector<json> nodes) {
  return {{"cluster", "prod"}, {"protocol", 17}, {"nodes", std::move(nodes)}};
}

} // namespace

TEST_CASE("screens: the state of a cluster fits 80 columns", "[screens]") {
  const auto x =
      cluster_of({peer("cache-1", "self"), peer("a-name-as-long-as-a-name-may-be-which-is-64-characters", "up"),
                  peer("cache-3", "unreachable", "connecting to cache-3.example:7001: refused")});
  const auto text = cluster_screen(x, 80);
  INFO(text);
  for (const auto* part : {"cluster prod, protocol 17\n", "cache-1", "self", "220 µs", "unreachable", "~",
                           "cache-3: connecting to cache-3.example:7001: refused\n", "FETCHED", "1.09 TiB",
                           "1,234,567,890", "SERVED", "4,321", "46.6 GiB", "99,999,999"})
    CHECK(has(text, part));
  CHECK_FALSE(has(text, "FILES"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    CHECK(width_of(line) <= 80);
  CHECK(has(cluster_screen(x, 200), "a-name-as-long-as-a-name-may-be-which-is-64-characters"));
}

TEST_CASE("screens: a cluster is whole if all nodes and etcd are reachable", "[screens]") {
  auto x = cluster_of({peer("cache-1", "self"), peer("cache-2", "up")});
  CHECK(is_whole(x));
  x["etcd"] = {{"endpoints", "http://etcd:2379"}, {"state", "up"}, {"listed", 2}};
  CHECK(is_whole(x));
  x["etcd"]["state"] = "unreachable";
  CHECK_FALSE(is_whole(x));
  x.erase("etcd");
  x["nodes"].push_back(peer("cache-3", "unreachable"));
  CHECK_FALSE(is_whole(x));
}

TEST_CASE("screens: the cluster is part of the status screen, with the reason for an unreachable node", "[screens]") {
  auto x = node({});
  CHECK_FALSE(has(status_screen(x, 80), "cluster"));
  x["cluster"] =
      cluster_of({peer("cache-1", "self"), peer("cache-2", "up"), peer("cache-3", "unreachable", "refused")});
  const auto text = status_screen(x, 200);
  INFO(text);
  CHECK(has(text, "cluster      prod, protocol 17: 3 nodes, 1 unreachable\n"));
  CHECK(has(text, "cache-2 at cache-2.example:7001: up, lag 220 µs, fetched 1.09 TiB, served 46.6 GiB, 99,999,999 keys "
                  "learned\n"));
  CHECK(has(text, "fetched 1.09 TiB, served 46.6 GiB, 99,999,999 keys learned (refused)\n"));
}

TEST_CASE("screens: the status screen shows the way out of each error", "[screens]") {
  const auto text = status_screen(with_warning(node({})), 80);
  INFO(text);
  CHECK(has(text, "a-node: degraded"));
  CHECK(has(text, "failed       slab_damaged: the slab file"));
  CHECK(has(text, "start the node again"));
  CHECK(has(text, "see docs/operations.md#slab_damaged"));
  CHECK(has(text, "no namespaces yet"));
}

TEST_CASE("screens: text that is not a status is refused", "[screens]") {
  CHECK(is_status(node({})));
  for (const auto* text : {"{}", "[]", "1", "null", R"({"node":{}})", R"({"health":"healthy"})"})
    CHECK_FALSE(is_status(json::parse(text)));
}

TEST_CASE("screens: the top screen shows activity between two answers", "[screens]") {
  top_screen x(true);
  check_size(x.lines(80, 24), 80, 24);
  CHECK(has(joined(x.lines(80, 24)), "waiting for the node's answer"));
  x.observe(node({ns("chat", 1000, 0, {rank(0, 100, 500)})}), at(0s));
  CHECK(has(joined(x.lines(80, 24)), "hit ratio        58.8 %")); // the last minute's
  x.observe(node({ns("chat", 1100, 75, {rank(0, 600, 500)})}), at(2s));
  const auto lines = x.lines(80, 24);
  check_size(lines, 80, 24);
  const auto text = joined(lines);
  INFO(text);
  CHECK(has(text, "a-node: healthy, up 2 h 3 min, clients 1, leases 2"));
  CHECK(has(text, "12:34:56"));
  CHECK(has(text, "hit ratio        75.0 %"));
  CHECK(has(text, "load          0.25 GB/s")); // 500 pages of 1 MB in 2 s
  CHECK(has(text, "lookups             5/s"));
  CHECK(has(text, "lookup p99       1.5 ms"));
  CHECK(has(text, "█"));
  CHECK(has(text, "chat"));
  CHECK(has(text, "q quit  p pause"));
  CHECK(has(text, " USED"));
  CHECK(has(text, "50.0 %"));
  CHECK(x.is_healthy());
}

TEST_CASE("screens: the top screen fits any terminal", "[screens]") {
  for (const bool unicode : {true, false}) {
    top_screen x(unicode);
    std::vector<json> namespaces;
    for (int i = 0; i < 30; ++i)
      namespaces.push_back(
          ns("namespace-with-a-long-name-" + std::to_string(i), 1000, 0, {rank(0, 100, 5), rank(1, 1, 5)}));
    for (int i = 0; i < 300; ++i)
      x.observe(with_warning(node(namespaces)), at(i * 1s));
    for (const auto& [columns, rows] :
         std::vector<std::pair<std::size_t, std::size_t>>{{80, 24}, {200, 60}, {40, 10}, {20, 3}, {1, 1}, {500, 5}})
      check_size(x.lines(columns, rows), columns, rows);
    CHECK(has(joined(x.lines(80, 24)), "slab_damaged"));
  }
}

TEST_CASE("screens: with long warnings the top screen shows the name and the way out of each", "[screens]") {
  top_screen x(false);
  auto answer = with_warning(node({ns("chat", 1000, 0, {})}));
  const std::vector<std::string> reasons{"index_full", "writes_fail"};
  for (const auto& reason : reasons)
    answer["warnings"].push_back({{"severity", "degraded"},
                                  {"reason", reason},
                                  {"text", std::string(400, 'x') + " " + std::string(400, 'y')},
                                  {"runbook", "docs/operations.md#" + reason}});
  x.observe(answer, at(0s));
  const auto text = joined(x.lines(80, 24));
  INFO(text);
  for (const auto& reason : reasons)
    CHECK(has(text, reason + " (docs/operations.md#" + reason + ")"));
  CHECK(has(text, "hit ratio"));
  CHECK(has(text, "chat"));
}

TEST_CASE("screens: keys sort, scroll, pause, hide ranks and quit", "[screens]") {
  top_screen x(false);
  const auto answer = [&](double a, double b) {
    return node({ns("a", 1000 + a, a, {rank(0, 0, 1)}), ns("b", 1000 + b, b, {rank(0, 0, 1)})});
  };
  x.observe(answer(0, 0), at(0s));
  x.observe(answer(10, 20), at(1s));
  const auto place = [&](const char* name) { return joined(x.lines(80, 24)).find("\n" + std::string(name) + " "); };
  CHECK(place("a") < place("b"));
  CHECK(x.press(top_key::sort)); // hits, which are equal
  CHECK(place("a") < place("b"));
  CHECK(x.press(top_key::sort)); // lookups
  CHECK(has(joined(x.lines(80, 24)), "sort: lookups"));
  // The bars show the sorted column.
  CHECK(has(joined(x.lines(120, 24)), "USED LOOKUPS"));
  CHECK(place("b") < place("a"));
  CHECK_FALSE(has(joined(x.lines(80, 24)), "rank 0"));
  CHECK(x.press(top_key::ranks));
  CHECK(has(joined(x.lines(80, 24)), "rank 0"));
  CHECK(x.press(top_key::ranks));
  CHECK(x.press(top_key::down));
  CHECK(place("b") == std::string::npos);
  CHECK(x.press(top_key::down));
  CHECK(place("a") != std::string::npos); // the last one stays
  CHECK(x.press(top_key::up));
  CHECK(place("b") != std::string::npos);
  CHECK(x.press(top_key::pause));
  CHECK(has(joined(x.lines(80, 24)), "paused"));
  const auto before = x.plain_line();
  x.observe(answer(10'000, 20), at(2s));
  CHECK(x.plain_line() == before);
  CHECK(x.press(top_key::none));
  CHECK_FALSE(x.press(top_key::quit));
}

TEST_CASE("screens: the top screen lists ranks that differ, and marks a damaged one", "[screens]") {
  top_screen x(false);
  auto answer = node({ns("chat", 1000, 0, {rank(0, 0, 500), rank(1, 0, 500)})});
  x.observe(answer, at(0s));
  CHECK_FALSE(has(joined(x.lines(80, 24)), "rank 1"));
  answer["namespaces"][0]["ranks"][1]["slots"]["live"] = 100;
  x.observe(answer, at(1s));
  CHECK(has(joined(x.lines(80, 24)), "  rank 1"));
  CHECK(has(joined(x.lines(80, 24)), "10.0 %"));
  answer["namespaces"][0]["ranks"][1]["slots"]["live"] = 499;
  x.observe(answer, at(2s));
  CHECK_FALSE(has(joined(x.lines(80, 24)), "rank 1"));
  answer["namespaces"][0]["ranks"][1]["damaged"] = true;
  x.observe(answer, at(3s));
  CHECK(has(joined(x.lines(120, 24)), "  rank 1 damaged"));
}

TEST_CASE("screens: the top screen uses its width for names, then for pictures", "[screens]") {
  top_screen x(false);
  x.observe(node({ns("deepseek-v3-distributed-tp8", 1000, 0, {rank(0, 0, 1)})}), at(0s));
  CHECK(has(joined(x.lines(80, 24)), "deepseek-v3-dist~ "));
  CHECK(has(joined(x.lines(90, 24)), "deepseek-v3-distributed-tp8 "));
  CHECK_FALSE(has(joined(x.lines(90, 24)), "USED LOAD"));
  CHECK(has(joined(x.lines(160, 24)), "USED LOAD"));
}

TEST_CASE("screens: the top screen begins with the history of the node", "[screens]") {
  const auto filled = [](duration interval) {
    top_screen x(false, interval);
    auto answer = node({});
    answer["history"] = {{"at", {10, 20}},          {"seconds", {10.0, 10.0}}, {"asked_keys", {0, 10}},
                         {"found_keys", {0, 10}},   {"lookups", {0, 20}},      {"evicted_keys", {0, 0}},
                         {"loaded_bytes", {0, 50}}, {"saved_bytes", {0, 0}},   {"lookup_p99_us", {0.0, 9.0}}};
    x.observe(answer, at(0s));
    const auto text = joined(x.lines(80, 24));
    return std::ranges::count(text.substr(text.find("lookup p99"), 80), '@');
  };
  CHECK(filled(5s) == 2);
  CHECK(filled(1s) == 10);
}

TEST_CASE("screens: the top screen has views of clients and of the cluster", "[screens]") {
  top_screen x(false);
  auto answer = node({ns("chat", 1000, 0, {rank(0, 0, 1)})});
  x.observe(answer, at(0s));
  CHECK(has(joined(x.lines(80, 24)), "v clients"));
  CHECK(x.press(top_key::view));
  const auto clients = joined(x.lines(80, 24));
  INFO(clients);
  CHECK(has(clients, "CLIENT"));
  CHECK(has(clients, "engine?[2J"));
  CHECK(has(clients, "0.50 GB/s"));
  CHECK_FALSE(has(clients, "HITS"));
  CHECK(has(clients, "v namespaces"));
  answer["cluster"] = cluster_of({peer("cache-1", "self"), peer("cache-2", "unreachable", "refused")});
  x.observe(answer, at(1s));
  CHECK(x.press(top_key::view));
  for (const auto columns : {80, 120}) {
    const auto lines = x.lines(static_cast<std::size_t>(columns), 24);
    check_size(lines, static_cast<std::size_t>(columns), 24);
    const auto text = joined(lines);
    INFO(text);
    for (const auto* part : {"NODE", "cache-2", "cache-2.example:7001", "unreachable", "1.09 TiB", "46.6 GiB"})
      CHECK(has(text, part));
    CHECK(std::ranges::any_of(
        lines, [](const screen_line& line) { return line.style == line_style::trouble && has(line.text, "cache-2"); }));
  }
  CHECK(x.press(top_key::view));
  CHECK(has(joined(x.lines(80, 24)), "chat"));
}

TEST_CASE("screens: with an unreachable node the last data stays on the screen with a notice", "[screens]") {
  top_screen x(false);
  x.miss("connection refused");
  CHECK_FALSE(x.is_reached());
  CHECK(x.plain_line() == "unreachable: connection refused");
  CHECK(has(joined(x.lines(80, 24)), "unreachable: connection refused"));
  x.observe(node({ns("chat", 1000, 0, {})}), at(0s));
  CHECK(x.is_reached());
  x.miss("connection refused");
  CHECK(has(joined(x.lines(80, 24)), "a-node: unreachable"));
  CHECK(has(joined(x.lines(80, 24)), "chat"));
  x.observe(node({}), at(2s));
  CHECK(has(joined(x.lines(80, 24)), "a-node: healthy"));
  CHECK_FALSE(has(joined(x.lines(80, 24)), "chat"));
}

TEST_CASE("screens: without a terminal each answer is printed as a line", "[screens]") {
  top_screen x(false);
  x.observe(node({ns("chat", 1000, 0, {rank(0, 0, 1)})}), at(0s));
  x.observe(with_warning(node({ns("chat", 1100, 75, {rank(0, 100, 1)})})), at(1s));
  const auto line = x.plain_line();
  INFO(line);
  for (const auto* part : {"2026-01-31T12:34:56Z a-node degraded: hits 75.0 %", "lookups 10/s", "load 0.10 GB/s",
                           "slab_damaged", "docs/operations.md#slab_damaged"})
    CHECK(has(line, part));
  CHECK_FALSE(has(line, "\n"));
  CHECK_FALSE(x.is_healthy());
}

} // namespace screens_test
