#include "tests/catch.hpp"
#include "tests/integration/certificates.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/patience.hpp"

#include <csignal>
#include <sstream>

namespace cluster_test {

/// Nodes that are peers of each other, in processes of their own, over the loopback interface.

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";

/// So that the expected hits are known.
const arguments one_at_a_time{"--concurrency", "1"};

} // namespace

TEST_CASE("cluster: an engine finds and loads pages of another node byte for byte") {
  const std::string transport = GENERATE("tcp", "ucx");
  const auto ranks = GENERATE(1U, 2U);
  if (transport == "ucx" && !there_is_ucx())
    return;
  test_cluster nodes(2, {.ranks = ranks, .page_bytes = 65536});
  nodes.change = [&](std::size_t, nlohmann::json& config) {
    config["remote"]["transport"] = transport;
    if (transport == "ucx")
      config["remote"]["ucx_interfaces"] = "lo";
  };
  nodes.start_all();
  const auto model = expected(small_trace);
  const auto first = nodes.replay(0, small_trace, one_at_a_time);
  check_clean(first, nodes.shape);
  CHECK(first.count("hit_blocks") == model.hit_blocks);
  // A lookup that found nothing before a fetch of another one, and asks after it, has the same pages fetched again.
  const auto second = nodes.replay(1, small_trace, one_at_a_time);
  check_clean(second, nodes.shape);
  CHECK(second.count("hit_blocks") == model.blocks);
  const auto status = nodes.status(1);
  CHECK(status.find("cluster here") != std::string::npos);
  CHECK(status.find("node-0") != std::string::npos);
  CHECK(status.find(" up ") != std::string::npos);
  CHECK(status.find(" LAG ") != std::string::npos);
  CHECK(eventually([&] { return sum_of_metric(nodes.node(1), "troupe_peer_lag_seconds") > 0; }));
  CHECK(status.find(" self ") != std::string::npos);
  CHECK(status.find(' ' + std::to_string(model.unique_blocks * nodes.shape.ranks) + ' ') != std::string::npos);
  // The other one has served as many.
  const auto served = nodes.status(0);
  INFO(served);
  CHECK(served.find(' ' + std::to_string(model.unique_blocks * nodes.shape.ranks) + ' ', served.find("SERVED")) !=
        std::string::npos);
  // Each page is stored twice; the copies at the original node are evicted first. Both ends count the moved pages.
  const auto pages = static_cast<double>(model.unique_blocks) * nodes.shape.ranks;
  // No request waits for the last notifications of them.
  CHECK(eventually([&] {
    return sum_of_metric(nodes.node(0), "troupe_evict_first_keys") == static_cast<double>(model.unique_blocks);
  }));
  CHECK(sum_of_metric(nodes.node(1), "troupe_evict_first_keys") == 0);
  CHECK(sum_of_metric(nodes.node(0), "troupe_remote_pages_total") == pages);
  CHECK(sum_of_metric(nodes.node(0), "troupe_remote_failed_pages_total") == 0);
  CHECK(sum_of_metric(nodes.node(1), "troupe_peer_pages_total") == pages);
  const auto found_in = [&](std::size_t i, const std::string& tier) {
    double out = 0;
    std::istringstream page(http(nodes.node(i), "GET", "/metrics").body);
    for (std::string line; std::getline(page, line);)
      if (line.starts_with("troupe_namespace_found_tier_keys_total{") && line.find('"' + tier + '"') != line.npos)
        out += std::stod(line.substr(line.rfind(' ')));
    return out;
  };
  CHECK(found_in(0, "peer") == 0);
  CHECK(found_in(0, "memory") + found_in(0, "disk") > 0);
  CHECK(found_in(1, "peer") > 0);
  // Each has learned from the other what it has seen of these keys.
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(eventually([&] { return sum_of_metric(nodes.node(i), "troupe_peer_learned_keys") > 0; }));
  // As a table, with the warnings in sentences below it.
  for (const auto* column : {"NAMESPACES", "FETCHED", "SERVED", "LEARNED KEYS"})
    CHECK(status.find(column) != std::string::npos);
  CHECK(status.find("node-0: ") == std::string::npos);
  // Fetched pages stay.
  nodes.node(0).program().kill();
  const auto third = nodes.replay(1, small_trace);
  check_clean(third, nodes.shape);
  CHECK(third.count("hit_blocks") == model.blocks);
  CHECK(eventually([&] { return nodes.status(1).find("\nnode-0: ") != std::string::npos; },
                   std::chrono::milliseconds(100)));
  nodes.all[0].reset();
  nodes.stop_all();
}

TEST_CASE("cluster: without cluster.keep_copies fetched copies are evicted first and the originals stay") {
  test_cluster nodes(2, {.page_bytes = 4096});
  const arguments home{"--set", "cluster.keep_copies=false"};
  nodes.start(0, home);
  nodes.start(1, home);
  nodes.wait_for_peers(0, 1);
  nodes.wait_for_peers(1, 1);
  const auto model = expected(small_trace);
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  const auto second = nodes.replay(1, small_trace);
  check_clean(second, nodes.shape);
  CHECK(second.count("hit_blocks") == model.blocks);
  CHECK(sum_of_metric(nodes.node(0), "troupe_evict_first_keys") == 0);
  CHECK(sum_of_metric(nodes.node(1), "troupe_evict_first_keys") == static_cast<double>(model.unique_blocks));
  nodes.stop_all();
}

TEST_CASE("cluster: with three nodes a prefix started on one node continues on another") {
  test_cluster nodes(3, {.page_bytes = 4096});
  nodes.start_all();
  const auto half = write_trace(nodes.scratch.path() / "half", {ids(1, 40)});
  const auto whole = write_trace(nodes.scratch.path() / "whole", {ids(1, 80)});
  check_clean(nodes.replay(0, half.c_str()), nodes.shape);
  const auto longer = nodes.replay(1, whole.c_str());
  check_clean(longer, nodes.shape);
  CHECK(longer.count("hit_blocks") == 40);
  const auto all = nodes.replay(2, whole.c_str());
  check_clean(all, nodes.shape);
  CHECK(all.count("hit_blocks") == 80);
  nodes.stop_all();
}

TEST_CASE("cluster: a peer killed during a replay costs only hits and is used again when it returns") {
  test_cluster nodes(2, {.page_bytes = 65536, .slots = 2048});
  nodes.start_all();
  check_clean(nodes.replay(0, "loogle:30,2048,3,128"), nodes.shape);
  process engine(replay_command({"--attach", nodes.node(1).address(), "--trace", "loogle:30,2048,3,128"}));
  nodes.node(1).wait_for_statistics([](const auto& x) { return x.keys > 60; });
  nodes.node(0).program().kill();
  const auto cut = result_of(engine);
  check_clean(cut, nodes.shape);
  nodes.node(1).program().wait_for_line(stream::err, "peer disconnected");

  nodes.all[0].reset();
  const auto seen = nodes.node(1).log_mark();
  nodes.start(0);
  nodes.node(1).program().wait_for_line(stream::err, "is available after a restart", seen);
  nodes.wait_for_peers(1, 1, seen);
  nodes.wait_for_peers(0, 1);
  // The other way round as well: the new one has nothing, and finds all at the old one.
  const auto back = nodes.replay(0, "loogle:30,2048,3,128");
  check_clean(back, nodes.shape);
  CHECK(back.count("hit_blocks") == expected("loogle:30,2048,3,128").blocks);
  check_clean(nodes.replay(0, small_trace, {"--salt", "7"}), nodes.shape);
  const auto again = nodes.replay(1, small_trace, {"--salt", "7"});
  check_clean(again, nodes.shape);
  CHECK(again.count("hit_blocks") == expected(small_trace).blocks);
  nodes.stop_all();
}

TEST_CASE("cluster: a frozen peer delays no lookup and is used again when it resumes") {
  test_cluster nodes(2, {.page_bytes = 65536, .slots = 2048});
  nodes.fails_soon = true;
  nodes.start_all();
  check_clean(nodes.replay(0, "loogle:30,2048,3,128"), nodes.shape);
  process engine(replay_command({"--attach", nodes.node(1).address(), "--trace", "loogle:30,2048,3,128"}));
  nodes.node(1).wait_for_statistics([](const auto& x) { return x.keys > 60; });
  nodes.node(0).program().send(SIGSTOP);
  check_clean(result_of(engine), nodes.shape);
  nodes.node(1).program().wait_for_line(stream::err, "peer disconnected");
  check_clean(nodes.replay(1, small_trace, {"--salt", "3"}), nodes.shape);
  const auto seen = nodes.node(1).log_mark();
  nodes.node(0).program().send(SIGCONT);
  nodes.node(1).program().wait_for_line(stream::err, "is available again", seen);
  check_clean(nodes.replay(0, small_trace, {"--salt", "4"}), nodes.shape);
  // Its peer session is restored a little later than the node itself.
  const auto blocks = expected(small_trace).blocks;
  for (int i = 0;; ++i) {
    const auto again = nodes.replay(1, small_trace, {"--salt", "4", "--limit", "4"});
    check_clean(again, nodes.shape);
    const auto salted = nodes.replay(0, small_trace, {"--salt", std::to_string(10 + i)});
    check_clean(salted, nodes.shape);
    const auto found = nodes.replay(1, small_trace, {"--salt", std::to_string(10 + i)});
    check_clean(found, nodes.shape);
    if (found.count("hit_blocks") == blocks)
      break;
    REQUIRE(i < 20);
  }
  nodes.stop_all();
}

TEST_CASE("cluster: a node of another cluster is refused and both log the reason") {
  test_cluster nodes(2);
  nodes.start(0);
  nodes.name = "there";
  nodes.start(1);
  // Each may be the first to ask the other, and says both what it answers and what it is answered.
  nodes.node(1).program().wait_for_line(stream::err, "is part of cluster 'here', not of 'there'");
  nodes.node(0).program().wait_for_line(stream::err, "peer rejected: 'node-1'");
  nodes.node(1).program().wait_for_line(stream::err, "no node of this cluster at 127.0.0.1");
  // They serve all the same.
  check_clean(nodes.replay(0, small_trace), nodes.shape);
  const auto alone = nodes.replay(1, small_trace, one_at_a_time);
  check_clean(alone, nodes.shape);
  CHECK(alone.count("hit_blocks") == expected(small_trace).hit_blocks);
  nodes.stop_all();
}

TEST_CASE("cluster: the reason for an unreachable seed is logged exactly") {
  test_cluster nodes(1);
  nodes.fails_soon = true;
  nodes.change = [](std::size_t, nlohmann::json& config) {
    config["cluster"]["seeds"].push_back({{"host", "no-such-host.invalid"}, {"port", 7002}});
    config["cluster"]["seeds"].push_back({{"host", "127.0.0.1"}, {"port", 1}});
  };
  nodes.start(0);
  auto& log = nodes.node(0).program();
  log.wait_for_line(stream::err, "no-such-host.invalid\" cannot be resolved");
  log.wait_for_line(stream::err, "127.0.0.1:1: connection refused");
  CHECK(eventually([&] { return nodes.status_in_one_line(0).find("cannot be resolved") != std::string::npos; },
                   std::chrono::milliseconds(100)));
  nodes.stop_all();
}

#ifdef TROUPE_SILENT_NAMES
TEST_CASE("cluster: silent name servers delay neither other peers nor the end of a node") {
  test_cluster nodes(2);
  nodes.change = [](std::size_t i, nlohmann::json& config) {
    auto& seeds = config["cluster"]["seeds"];
    if (i == 0)
      seeds.insert(seeds.begin(), nlohmann::json{{"host", "a.silent"}, {"port", 7002}});
  };
  nodes.start(1);
  launch where;
  where.arguments = {"/usr/bin/env", "LD_PRELOAD=" TROUPE_SILENT_NAMES};
  nodes.all[0].emplace(write_config(nodes.scratch.path() / "0", nodes.config(0)), arguments{}, where);
  nodes.wait_for_peers(0, 1);
  check_clean(nodes.replay(0, small_trace), nodes.shape);
  nodes.node(0).program().wait_for_line(stream::err, "a.silent:7002: its name was not resolved in time");
  nodes.stop_all();
}
#endif

TEST_CASE("cluster: with certificates an engine's certificate is refused as that of a node") {
  if (!std::filesystem::exists("/usr/bin/openssl"))
    return;
  test_cluster nodes(3);
  const certificates files(nodes.scratch.path());
  nodes.insecure = false;
  nodes.start(0, files.settings("peer"));
  nodes.start(1, files.settings("peer"));
  nodes.start(2, files.settings("engine"));
  nodes.wait_for_peers(0, 1);
  nodes.wait_for_peers(1, 1);
  const auto said = nodes.node(2).program().wait_for_line(stream::err, "organizational unit").text;
  CHECK(said.find("no node of this cluster at 127.0.0.1") != std::string::npos);
  nodes.node(0).program().wait_for_line(stream::err, "with the certificate of a client claims to be a node");
  // Nor do nodes that connect to it accept it as a peer.
  for (std::size_t i = 0; i < 2; ++i) {
    const auto why = nodes.node(i).program().wait_for_line(stream::err, "the server's certificate does not name").text;
    CHECK(why.find("organizational unit (OU) \"node\" (actors.tls)") != std::string::npos);
    CHECK(why.find("127.0.0.1:" + std::to_string(nodes.ports[2])) != std::string::npos);
    // It may be trying again just now.
    CHECK(eventually(
        [&] { return nodes.status_in_one_line(i).find("the server's certificate does not name") != std::string::npos; },
        std::chrono::milliseconds(100)));
    CHECK(nodes.status(i).find("node-2") == std::string::npos);
  }
  check_clean(nodes.replay(0, small_trace), nodes.shape);
  const auto found = nodes.replay(1, small_trace);
  check_clean(found, nodes.shape);
  CHECK(found.count("hit_blocks") == expected(small_trace).blocks);
  const auto alone = nodes.replay(2, small_trace, one_at_a_time);
  check_clean(alone, nodes.shape);
  CHECK(alone.count("hit_blocks") == expected(small_trace).hit_blocks);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(nodes.node(i).program().so_far(stream::err).find("node 'node-2' at") == std::string::npos);
  nodes.stop_all();
}

} // namespace cluster_test
