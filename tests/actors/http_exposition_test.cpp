#include "actors/node/metrics/exposition.hpp"
#include "actors/node/metrics/metrics.hpp"
#include "http/admin.hpp"
#include "http/native/native.hpp"
#include "tests/actors/http_world.hpp"
#include "tests/actors/sim.hpp"

#include <set>
#include <sstream>

namespace http_exposition_test {

using namespace troupe;
using namespace troupe::test;

namespace {

bool has_line(const std::string& page, const std::string& line) {
  return ("\n" + page).find("\n" + line + "\n") != std::string::npos;
}

namespace_info info(const std::string& name, std::vector<rank_info> ranks = {}) {
  namespace_info out;
  out.spec.name = name;
  out.spec.geometry = {1, 1, 1, 10, 1, 1};
  out.keys = 1;
  out.ranks = std::move(ranks);
  return out;
}

} // namespace

TEST_CASE("http exposition: namespaces are shown with their ranks and the states of slots", "[http][metrics]") {
  auto x = info("a", {{0, 100, 20, 3, 4}, {7, 5, 5, 1, 0}});
  x.keys = 30;
  x.complete_keys = 19;
  x.evicted_keys = 5;
  x.leases = 6;
  x.reservations = 2;
  const auto page = to_text(families_of({x, info("b")}, {}));
  INFO(page);
  for (const auto* line :
       {R"(troupe_namespace_keys{namespace="a"} 30)", R"(troupe_namespace_keys{namespace="b"} 1)",
        R"(troupe_namespace_complete_keys{namespace="a"} 19)",
        R"(troupe_namespace_evicted_keys_total{namespace="a"} 5)", R"(troupe_namespace_leases{namespace="a"} 6)",
        R"(troupe_namespace_reservations{namespace="a"} 2)",
        R"(troupe_namespace_slots{namespace="a",rank="0",state="live"} 20)",
        R"(troupe_namespace_slots{namespace="a",rank="0",state="reserved"} 3)",
        R"(troupe_namespace_slots{namespace="a",rank="0",state="withheld"} 4)",
        R"(troupe_namespace_slots{namespace="a",rank="0",state="free"} 73)",
        // Numbers of different moments never show less than nothing.
        R"(troupe_namespace_slots{namespace="a",rank="7",state="free"} 0)",
        R"(troupe_namespace_live_bytes{namespace="a",rank="0"} 200)",
        "# TYPE troupe_namespace_evicted_keys_total counter"}) {
    INFO(line);
    CHECK(has_line(page, line));
  }
}

TEST_CASE("http exposition: the metrics output stays bounded however many namespaces and ranks clients create",
          "[http][metrics]") {
  std::vector<namespace_info> all;
  for (int i = 0; i < 30; ++i) {
    std::vector<rank_info> ranks;
    for (std::uint64_t rank = 0; rank < 10; ++rank)
      ranks.push_back({rank, 4, 1, 0, 0});
    all.push_back(info("space " + std::to_string(100 + i), std::move(ranks)));
  }
  const auto page = to_text(families_of(all, {5, 12}));
  INFO(page);
  CHECK(has_line(page, R"(troupe_namespace_keys{namespace="space 104"} 1)"));
  CHECK(has_line(page, R"(troupe_namespace_keys{namespace="other"} 25)"));
  CHECK(has_line(page, R"(troupe_namespace_slots{namespace="space 101",rank="1",state="live"} 1)"));
  CHECK(has_line(page, R"(troupe_namespace_slots{namespace="space 101",rank="other",state="live"} 8)"));
  CHECK(has_line(page, R"(troupe_namespace_slots{namespace="other",rank="other",state="live"} 250)"));
  std::set<std::string> series;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#"))
      CHECK(series.insert(line.substr(0, line.rfind(' '))).second);
  // 6 names with 8 series each; 12 ranks of their own and 5 "other" with 5 each.
  CHECK(series.size() == 6 * 11 + 17 * 5);
}

TEST_CASE("http exposition: current statistics reach the metrics actor before a scrape is answered",
          "[http][metrics]") {
  sim s;
  const auto actor = s.spawn<metrics>("n");
  probe node{s.system()};
  std::vector<result<std::string>> texts;
  const auto ask_for = [&](const metrics_source& source) {
    source([&](result<std::string> x) { texts.push_back(std::move(x)); });
    s.run();
  };
  ask_for(source_of(s.system(), node.as<node_actor>(), actor));
  CHECK(texts.empty());
  const auto asked = node.take_one<stats_atom>();
  node_stats now;
  now.registry.withheld_slots = 77;
  REQUIRE(s.ask(actor, now).code() == errc::ok);
  node.reply(asked, caf::make_message(now));
  s.run();
  REQUIRE(texts.size() == 1);
  REQUIRE(texts[0]);
  CHECK(texts[0]->find("troupe_withheld_slots{node=\"n\"} 77") != std::string::npos);

  // A node that fails to count does not hide the known values.
  ask_for(source_of(s.system(), node.as<node_actor>(), actor));
  node.reply_error(node.take_one<stats_atom>(), errc::timeout);
  s.run();
  REQUIRE(texts.size() == 2);
  CHECK(texts[1]);
  ask_for(source_of(s.system(), {}, actor));
  REQUIRE(texts.size() == 3);
  CHECK(texts[2]);
  ask_for(source_of(s.system(), {}, {}));
  REQUIRE(texts.size() == 4);
  CHECK_FALSE(texts[3]);
}

TEST_CASE("http exposition: namespaces created at run time appear in /metrics while they exist", "[http][metrics]") {
  const http_world w([](http::router& r, const std::shared_ptr<const metadata_service>& service) {
    http::native::add_routes(r, service, {});
    http::admin_options options;
    options.metrics.push_back(source_of_namespaces([service](auto then) { service->describe({}, std::move(then)); }));
    http::add_admin_routes(r, options);
  });
  REQUIRE(w.post("/v1/namespaces", {{"name", "a"}, {"model", "m"}}).code == 201);
  REQUIRE(w.post("/v1/namespaces/a/ranks", {{"rank", 0}, {"slots", 8}}).code == 204);
  REQUIRE(w.post("/v1/namespaces/a/reserve", {{"rank", 0}, {"keys", {"k", "l"}}}).code == 200);
  auto page = w.get("/metrics").text;
  INFO(page);
  CHECK(has_line(page, R"(troupe_namespace_slots{namespace="a",rank="0",state="reserved"} 2)"));
  CHECK(has_line(page, R"(troupe_namespace_slots{namespace="a",rank="0",state="free"} 6)"));
  REQUIRE(w.call("DELETE", "/v1/namespaces/a?force=true").code == 204);
  CHECK(w.get("/metrics").text.find("namespace=\"a\"") == std::string::npos);
}

} // namespace http_exposition_test
