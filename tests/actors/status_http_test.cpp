#include "base/log.hpp"
#include "http/native/native.hpp"
#include "http/page/page.hpp"
#include "http/status/namespace_capacity.hpp"
#include "http/status/status_report.hpp"
#include "io/slab/beyond_slab.hpp"
#include "tests/actors/node_with_http.hpp"
#include "tests/actors/openapi_shape.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace status_http_test {

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

/// The mismatch between a reply and the description of the API; empty if there is none.
std::string misfit(const std::string& path, const json& answer) {
  const auto document = json::parse(http::native::openapi_text());
  const auto& schema = document.at("paths")
                           .at(path)
                           .at("get")
                           .at("responses")
                           .at("200")
                           .at("content")
                           .at("application/json")
                           .at("schema");
  return what_is_wrong(document, schema, answer, path);
}

/// The anchors that docs/operations.md has by its headings.
std::vector<std::string> anchors_of_operations() {
  std::vector<std::string> out;
  std::ifstream file(TROUPE_SOURCE_DIR "/docs/operations.md");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("#"))
      out.push_back("docs/operations.md#" + line.substr(std::min(line.find(' ') + 1, line.size())));
  return out;
}

} // namespace

TEST_CASE_METHOD(node_with_http, "status: one document reports the health of a node", "[status]") {
  REQUIRE(post("/rank/0/initialize", {{"num_pages", 100}, {"role", "worker"}}).code == 200);
  CHECK(post("/v1/namespaces/small/match", {{"keys", {"a", "b", "c"}}}).code == 200);
  const auto got = get("/v1/status");
  INFO(got.text);
  REQUIRE(got.code == 200);
  const auto x = got.body();
  CHECK(misfit("/v1/status", x) == "");
  CHECK(x.at("health") == "healthy");
  CHECK(x.at("ready") == true);
  CHECK(x.at("node").at("name") == options.node_name);
  CHECK(x.at("node").at("version") == "test");
  CHECK(x.at("node").at("durability") == "none");
  CHECK(x.at("node").at("uptime_s").get<double>() >= 0);
  CHECK(x.at("node").at("slabs").get<std::string>().starts_with("2 files "));
  CHECK(x.at("tiers").at("memory").at("limit_bytes") == options.memory.bytes);
  CHECK(x.at("tiers").at("disk").at("slots") == world_size * node_slots);
  REQUIRE(x.at("namespaces").size() == 2);
  // In the order of their names: a namespace of a slot client and one whose pages the node stores.
  const auto& theirs = x.at("namespaces").at(0);
  CHECK(theirs.at("name") == "hf3fs");
  CHECK(theirs.at("ranks").at(0).at("kept_by") == "engine");
  CHECK(theirs.at("ranks").at(0).at("slots").at("free") == 100);
  CHECK_FALSE(theirs.at("ranks").at(0).contains("disk"));
  const auto& own = x.at("namespaces").at(1);
  CHECK(own.at("name") == "small");
  CHECK(own.at("total") == json({{"lookups", 1},
                                 {"asked_keys", 3},
                                 {"found_keys", 0},
                                 {"memory_keys", 0},
                                 {"disk_keys", 0},
                                 {"peer_keys", 0},
                                 {"evicted_keys", 0}}));
  REQUIRE(own.at("ranks").size() == world_size);
  for (const auto& rank : own.at("ranks")) {
    CHECK(rank.at("kept_by") == "node");
    CHECK(rank.at("slots").at("total") == node_slots);
    CHECK(rank.at("slots").at("free") == node_slots);
    CHECK(rank.at("disk").at("pages") == 0);
  }
  CHECK(x.at("clients").at("attached") == 0);
  CHECK(x.contains("history"));
  CHECK_FALSE(get("/v1/status?history=false").body().contains("history"));
  CHECK(get("/v1/status?history=maybe").code == 400);
  const auto longer = get("/v1/status?history=long").body();
  CHECK(misfit("/v1/status", longer) == "");
  CHECK(longer.at("history").at("interval_s") == 60.0);
  CHECK(x.at("history").at("interval_s") == 10.0);
  CHECK_FALSE(x.contains("cluster"));
  for (const auto& w : x.at("warnings"))
    CHECK(w.at("severity") == "notice");
}

TEST_CASE_METHOD(node_with_http, "status: traffic since the start is part of the last minute", "[status]") {
  // The first totals are those of the start.
  REQUIRE(eventually([&] { return get("/v1/status").body().at("last_minute").at("seconds").get<double>() > 0; },
                     std::chrono::milliseconds(10)));
  CHECK(post("/v1/namespaces/small/match", {{"keys", {"a", "b"}}}).code == 200);
  const auto x = get("/v1/status").body();
  CHECK(x.at("last_minute").at("asked_keys") == 2);
  CHECK(x.at("last_minute").at("hit_ratio") == 0.0);
  CHECK(x.at("namespaces").at(0).at("last_minute").at("lookups") == 1);
}

TEST_CASE_METHOD(node_with_http, "status: a damaged slab is reported with the remedy and a link to the docs",
                 "[status]") {
  std::filesystem::remove(options.data_dir / "small.rank-1.slab");
  json x;
  REQUIRE(eventually([&] { return (x = get("/v1/status").body()).at("health") == "degraded"; },
                     std::chrono::milliseconds(10)));
  CHECK(misfit("/v1/status", x) == "");
  CHECK(x.at("ready") == false);
  const auto& w = x.at("warnings").at(0);
  CHECK(w.at("severity") == "failed");
  CHECK(w.at("reason") == "slab_damaged");
  CHECK(w.at("text").get<std::string>().find("rank 1") != std::string::npos);
  CHECK(w.at("runbook") == "docs/operations.md#slab_damaged");
  CHECK(x.at("namespaces").at(0).at("ranks").at(0).at("damaged") == false);
  CHECK(x.at("namespaces").at(0).at("ranks").at(1).at("damaged") == true);
}

TEST_CASE("status: a cluster, its clients and its peers are part of the document", "[status]") {
  http::node_status::status_report x;
  CHECK_FALSE(json::parse(status_text(x)).contains("cluster"));
  x.stats.cluster.name = "prod";
  auto& peer = x.stats.cluster.peers.emplace_back();
  peer.node = "b";
  peer.served_pages = 3;
  peer.served_bytes = 12;
  auto& attached = x.stats.attached.emplace_back();
  attached.number = 7;
  attached.is_node = true;
  attached.loaded_bytes = 3'000;
  x.totals.clients = {{7, 3'000, 0}};
  x.before.clients = {{7, 1'000, 0}};
  x.since_before = std::chrono::seconds(2);
  const auto text = json::parse(status_text(x));
  CHECK(text.at("cluster").at("nodes").at(0).at("served_pages") == 3);
  CHECK(text.at("cluster").at("nodes").at(0).at("served_bytes") == 12);
  const auto& client = text.at("clients").at("list").at(0);
  CHECK(client.at("is_node") == true);
  CHECK(client.at("loaded_bytes") == 3'000);
  CHECK(client.at("last_minute").at("load_gbps") == Approx(1e-6));
}

TEST_CASE("status: slab files that grow have the room that they may grow to", "[status]") {
  http::node_status::status_report x;
  rank_stats rank;
  rank.io.frame_bytes = 100;
  rank.io.slab_slots = rank.slots.total = 10;
  x.stats.ranks = {rank};
  x.made_slabs_bytes = 400;
  x.made_slabs_limit = 5'000;
  const auto disk = json::parse(status_text(x)).at("tiers").at("disk");
  CHECK(disk.at("limit_bytes") == 1'000);
  CHECK(disk.at("capacity_bytes") == 600 + 5'000);
}

TEST_CASE("status: every warning has a section in the runbooks", "[status]") {
  const auto anchors = anchors_of_operations();
  const auto is_there = [&](const std::string& anchor) {
    INFO(anchor);
    CHECK(std::ranges::find(anchors, anchor) != anchors.end());
  };
  for (std::uint8_t i = 0; i < trouble_count; ++i)
    is_there(runbook_of(static_cast<trouble>(i)));
  http::node_status::status_report x;
  x.memory_text = "not locked (RLIMIT_MEMLOCK)";
  x.stats.lingering_clients = 1;
  std::vector<http::node_status::warning> notices;
  opened_parts opened;
  opened.buffered = true;
  opened.without_io_uring = true;
  opened.unusable_memory = "memory.bytes: 3 GiB of 4 GiB can never hold a page";
  add_notices(notices, x, opened);
  CHECK(notices.size() == 5);
  for (const auto& w : notices)
    is_there(w.runbook);
}

TEST_CASE("status: a namespace reports its capacity and the tier that bounds it", "[status]") {
  using namespace http::node_status;
  constexpr std::uint64_t mebibyte = 1U << 20U;
  const room_of_node room{256 * mebibyte, 16 * mebibyte, 64 * mebibyte};
  namespace_info ns;
  ns.spec.world_size = 2;
  ns.ranks.items = {{0}, {1}};
  rank_stats in_slab;
  in_slab.io.frame_bytes = mebibyte;
  in_slab.io.slab_slots = 100;
  in_slab.slots.total = 100;
  auto smaller = in_slab;
  smaller.io.slab_slots = smaller.slots.total = 80;
  CHECK(capacity_of(ns, {&in_slab, &smaller}, room) == namespace_capacity{80, 180, 180 * mebibyte, "disk"});
  // In whole pages of each extent, which both ranks share.
  rank_stats in_memory;
  in_memory.io.frame_bytes = 3 * mebibyte;
  CHECK(capacity_of(ns, {&in_memory, &in_memory}, room) == namespace_capacity{40, 80, 240 * mebibyte, "memory"});
  // Most frames may be smaller ones, for encoded pages.
  auto encoded = in_memory;
  encoded.io.frames = 60;
  encoded.io.memory_bytes = 120 * mebibyte;
  CHECK(capacity_of(ns, {&encoded, &encoded}, room).keys == 64);
  // A file of a client's namespace can grow as far as there is disk space for all of them.
  auto growing = in_slab;
  growing.slots.total = 4;
  CHECK(capacity_of(ns, {&growing, &growing}, room) == namespace_capacity{32, 64, 64 * mebibyte, "disk"});
  // Memory beyond the slab counts as far as pages of the slab leave it.
  auto in_both = in_slab;
  in_both.io.memory_slots = 256;
  in_both.slots = {.total = 140, .beyond_slab = 40};
  const auto beyond = io::pages_beyond_slab(128, 100);
  CHECK(capacity_of(ns, {&in_both, &in_both}, room) ==
        namespace_capacity{100 + beyond, 2 * (100 + beyond), 2 * (100 + beyond) * mebibyte, "disk and memory"});
  ns.ranks.items[0].slots = ns.ranks.items[1].slots = 7;
  CHECK(capacity_of(ns, {nullptr, nullptr}, room).keys == 7);
  CHECK(capacity_of(ns, {nullptr, nullptr}, room).bounded_by == "engine");
  ns.ranks.items.clear();
  CHECK(capacity_of(ns, {}, room) == namespace_capacity{});
}

TEST_CASE("status: lists are limited in length and the rest is counted", "[status]") {
  http::node_status::status_report x;
  for (std::size_t i = 0; i < http::node_status::namespaces_most + 3; ++i) {
    namespace_info ns;
    ns.spec.name = "space-" + std::to_string(1000 + i);
    for (rank_number rank = 0; rank < 16; ++rank)
      ns.ranks.items.push_back({rank});
    x.namespaces.push_back(ns);
  }
  x.stats.attached.resize(http::node_status::clients_most + 10);
  const auto text = json::parse(status_text(x));
  CHECK(text.at("namespaces").size() == http::node_status::namespaces_most);
  CHECK(text.at("namespaces_omitted") == 3);
  std::size_t ranks = 0;
  std::size_t omitted = 0;
  for (const auto& ns : text.at("namespaces")) {
    ranks += ns.at("ranks").size();
    omitted += ns.at("ranks_omitted").get<std::size_t>();
  }
  CHECK(ranks == http::node_status::ranks_most);
  CHECK(ranks + omitted == 16 * http::node_status::namespaces_most);
  CHECK(text.at("clients").at("list").size() == http::node_status::clients_most);
}

struct node_with_salt : node_with_http {
  node_with_salt() : node_with_http(false) {
    options.namespaces[0].salt = "grains";
    start();
  }
};

TEST_CASE_METHOD(node_with_salt, "status: the config is shown without salts and the log unchanged", "[status]") {
  log::set_level("info");
  log::get("node")->info("a line of \"this\" test");
  const auto lines = get("/v1/log").body();
  CHECK(misfit("/v1/log", lines) == "");
  CHECK(std::ranges::any_of(lines.at("lines"), [](const json& line) {
    return line.get<std::string>().ends_with("info node: a line of \"this\" test");
  }));
  const auto config = get("/v1/config");
  CHECK(config.code == 200);
  CHECK(config.body().at("namespaces").at(0).at("name") == "small");
  // A caller that needs no token has the role of an administrator and may be any program of this host.
  for (const auto* path : {"/v1/config", "/v1/status", "/v1/namespaces", "/v1/namespaces/small"}) {
    const auto x = get(path);
    INFO(path);
    CHECK(x.code == 200);
    CHECK_FALSE(x.says("grains"));
  }
}

TEST_CASE_METHOD(node_with_http, "web page: it needs no token and its policy allows requests to its node only",
                 "[page]") {
  const auto files = http::page::files();
  REQUIRE(files.size() == 9);
  for (const auto& file : files) {
    INFO(file.path);
    http::client c{web->port()};
    const auto reply = c.call("GET " + std::string(file.path) + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    CHECK(reply.code == 200);
    CHECK(reply.body == file.text);
    CHECK(file.text.size() > 1000);
    CHECK(reply.head.find("\r\nContent-Type: " + std::string(file.type)) != std::string::npos);
    CHECK(reply.head.find("\r\nContent-Security-Policy: default-src 'none'; script-src 'self'") != std::string::npos);
    // It loads nothing from another site, and markup is never made of text. The runbooks are only shown.
    if (file.type.starts_with("text/markdown"))
      continue;
    auto rest = std::string(file.text);
    for (auto at = rest.find("://"); at != std::string::npos; at = rest.find("://", at + 1))
      CHECK(rest.substr(at, 13) == "://www.w3.org");
    CHECK(rest.find("innerHTML") == std::string::npos);
  }
}

TEST_CASE("web page: it has the runbook of every warning", "[page]") {
  const auto files = http::page::files();
  const auto markdown = std::ranges::find(files, "/runbooks.md", &http::page::file::path);
  REQUIRE(markdown != files.end());
  for (std::uint8_t i = 0; i < trouble_count; ++i) {
    INFO(static_cast<int>(i));
    CHECK(markdown->text.find("\n### " + std::string(to_string(static_cast<trouble>(i))) + "\n") !=
          std::string_view::npos);
  }
}

} // namespace status_http_test
