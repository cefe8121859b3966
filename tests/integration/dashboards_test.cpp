#include "actors/support/node_condition.hpp"
#include "tests/catch.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <nlohmann/json.hpp>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

namespace dashboards_test {

/// The packaged files for Prometheus and Grafana name metrics and parts of the documentation that exist.

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

const fs::path source = TROUPE_SOURCE_DIR;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  REQUIRE(in);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

/// Everything in the text that the pattern's first group matches.
std::set<std::string> all_in(const std::string& text, const std::string& pattern) {
  const std::regex wanted(pattern);
  std::set<std::string> out;
  for (std::sregex_iterator i(text.begin(), text.end(), wanted), end; i != end; ++i)
    out.insert((*i)[1]);
  return out;
}

/// The anchor that GitHub makes of a heading.
std::string anchor_of(const std::string& heading) {
  std::string out;
  for (const char c : heading)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_')
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ')
      out += '-';
  return out;
}

std::optional<fs::path> in_path(const std::string& program) {
  const auto* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::exists(fs::path(folder) / program))
      return fs::path(folder) / program;
  return std::nullopt;
}

/// A node that has been used, of a cluster whose other node is unreachable.
class used_node {
public:
  used_node() : node_(write_config(scratch_.path(), config())) {
    CHECK(run_replay({"--attach", node_.address(), "--trace", "loogle:2,1024,3,128"}).code == 0);
  }

  /// The metrics of the server after it has answered some requests.
  std::string metrics() const {
    std::string page;
    http(node_, "GET", "/metrics"); // from now on the server has answered something
    CHECK(eventually(
        [&] {
          page = http(node_, "GET", "/metrics").body;
          return page.find("troupe_request_seconds_bucket{") != std::string::npos &&
                 page.find("troupe_peer_up{") != std::string::npos;
        },
        std::chrono::milliseconds(50)));
    return page;
  }

private:
  nlohmann::json config() const {
    auto out = node_config(scratch_.path());
    out["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
    out["registry"]["durability"] = "relaxed";
    out["remote"] = {{"enabled", true}};
    constexpr int closed_port = 1;
    out["cluster"]["name"] = "here";
    out["cluster"]["seeds"].push_back({{"host", "127.0.0.1"}, {"port", closed_port}});
    return out;
  }

  scratch_directory scratch_;
  serving_node node_;
};

} // namespace

TEST_CASE("dashboards: every metric in the dashboard and the alerts exists") {
  const auto page = used_node().metrics();
  const auto there = all_in(page, "\n(troupe_[a-z_]+)[{ ]");
  for (const auto* file : {"configs/prometheus/alerts.yml", "configs/grafana/troupe.json"}) {
    const auto used = all_in(text_of(source / file), "(troupe_[a-z_]+)[{\\[ ,()\n\"]");
    CHECK(used.size() > 5);
    for (const auto& name : used) {
      INFO(file << " uses " << name);
      CHECK(there.contains(name));
    }
  }
  for (const auto& reason : all_in(text_of(source / "configs/prometheus/alerts.yml"), "reason=\"([a-z_]+)\"")) {
    INFO(reason);
    CHECK(page.find("reason=\"" + reason + "\"") != std::string::npos);
  }
  CHECK(page.find("kind=\"match\"") != std::string::npos);
}

TEST_CASE("dashboards: every alert links to its runbook and every runbook has an alert") {
  const auto alerts = text_of(source / "configs/prometheus/alerts.yml");
  const auto books = all_in(alerts, "runbook: docs/operations.md#([a-z_-]+)");
  const auto notified = text_of(source / "docs/operations.md");
  std::set<std::string> parts;
  for (const auto& heading : all_in(notified, "\n### ([^\n]+)"))
    parts.insert(anchor_of(heading));
  for (const auto& x : books) {
    INFO(x);
    CHECK(parts.contains(x));
  }
  for (const auto& heading : all_in(notified, "\n### (Alert: [^\n]+)")) {
    INFO(heading);
    CHECK(books.contains(anchor_of(heading)));
  }
  // Each reason of degradation that a node reports has an alert.
  for (std::uint8_t i = 0; i < troupe::trouble_count; ++i) {
    INFO(to_string(static_cast<troupe::trouble>(i)));
    CHECK(alerts.find("runbook: " + troupe::runbook_of(static_cast<troupe::trouble>(i)) + "\n") != std::string::npos);
  }
}

TEST_CASE("dashboards: Grafana can import the dashboard") {
  const auto dashboard = nlohmann::json::parse(text_of(source / "configs/grafana/troupe.json"));
  CHECK(dashboard.at("title") == "Troupe");
  std::set<int> ids;
  for (const auto& panel : dashboard.at("panels")) {
    CHECK(ids.insert(panel.at("id").get<int>()).second);
    const auto& place = panel.at("gridPos");
    CHECK(place.at("x").get<int>() + place.at("w").get<int>() <= 24);
    if (panel.at("type") != "row")
      CHECK_FALSE(panel.at("targets").empty());
  }
}

TEST_CASE("dashboards: promtool accepts the Prometheus files") {
  const auto promtool = in_path("promtool");
  if (!promtool) {
    WARN("skipped: there is no promtool in PATH (package prometheus)");
    return;
  }
  const auto check = [](const arguments& what) {
    launch how;
    how.arguments = what;
    const auto x = run(how);
    INFO(x.out << x.err);
    CHECK(x.code == 0);
  };
  check({promtool->string(), "check", "config", (source / "configs/prometheus/scrape.yml").string()});
  const scratch_directory scratch;
  const auto file = scratch / "metrics";
  std::ofstream(file) << used_node().metrics();
  check({"/bin/sh", "-c", "\"$0\" check metrics < \"$1\"", promtool->string(), file.string()});
}

} // namespace dashboards_test
