#include "tests/catch.hpp"
#include "tests/integration/certificates.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/listener.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/patience.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace unreachable_test {

/// What a node says of peers that it cannot reach, or whose pages it cannot reach: the cause, and not another one.

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++out;
  return out;
}

bool becomes(test_cluster& nodes, std::size_t i, const std::string& text) {
  return eventually([&] { return nodes.status_in_one_line(i).find(text) != std::string::npos; },
                    std::chrono::milliseconds(100));
}

void add_seed(nlohmann::json& config, std::uint16_t port) {
  config["cluster"]["seeds"].push_back({{"host", "127.0.0.1"}, {"port", port}});
}

} // namespace

TEST_CASE("unreachable: a seed where something else answers is named by what answers there") {
  const listener silent(listener::manner::silent);
  const listener closing(listener::manner::closes);
  const scratch_directory scratch;
  auto other = node_config(scratch.path(), {});
  other["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  serving_node with_http(write_config(scratch.path(), other));
  const auto http = nlohmann::json::parse(with_http.ready_line()).at("http").at("port").get<std::uint16_t>();
  test_cluster nodes(1);
  nodes.fails_soon = true;
  nodes.change = [&](std::size_t, nlohmann::json& config) {
    for (const auto port : {silent.port(), closing.port(), http})
      add_seed(config, port);
  };
  nodes.start(0);
  auto& log = nodes.node(0).program();
  const auto said_of = [&](std::uint16_t port) -> std::string {
    return log.wait_for_line(stream::err, "no node of this cluster at 127.0.0.1:" + std::to_string(port)).text;
  };
  const auto of_silent = said_of(silent.port());
  INFO(of_silent);
  CHECK(of_silent.find("it accepts connections and sends nothing") != std::string::npos);
  CHECK(said_of(closing.port()).find("it closed the connection before it sent anything") != std::string::npos);
  CHECK(said_of(http).find("an HTTP server answers there") != std::string::npos);
  nodes.stop_all();
  CHECK(with_http.stop() == 0);
}

TEST_CASE("unreachable: a replay says what answers at the address") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path(), {});
  config["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  serving_node node(write_config(scratch.path(), config));
  const auto http = nlohmann::json::parse(node.ready_line()).at("http").at("port").get<int>();
  const auto x = run_replay(
      {"--attach", "127.0.0.1:" + std::to_string(http), "--trace", "loogle:1,64,1,64", "--attach-limit", "8"});
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("an HTTP server answers there, and not a node") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("unreachable: a refused certificate is distinguished from a missing TLS") {
  if (!std::filesystem::exists("/usr/bin/openssl"))
    return;
  // Four nodes: two of one authority, one of another, one without TLS.
  test_cluster nodes(4);
  nodes.fails_soon = true;
  const certificates ours(nodes.scratch.path());
  const scratch_directory elsewhere;
  const certificates theirs(elsewhere.path());
  nodes.insecure = false;
  nodes.change = [](std::size_t i, nlohmann::json& config) {
    if (i == 3)
      config["actors"]["insecure"] = true;
  };
  nodes.start(0, ours.settings("peer"));
  nodes.start(1, ours.settings("peer"));
  nodes.start(2, theirs.settings("peer"));
  nodes.start(3);
  nodes.wait_for_peers(0, 1);
  // While the others start, the reason is another one.
  CHECK(becomes(nodes, 0, "its certificate is refused here: "));
  CHECK(becomes(nodes, 2, "its certificate is refused here: "));
  CHECK(becomes(nodes, 0, "speaks without TLS"));
  CHECK(becomes(nodes, 3, "it requires TLS"));
  nodes.stop_all();
}

TEST_CASE("unreachable: a server that refuses the certificate of a client says which check failed") {
  if (!std::filesystem::exists("/usr/bin/openssl"))
    return;
  const scratch_directory scratch;
  const certificates files(scratch.path());
  auto config = node_config(scratch.path(), {});
  config["actors"].erase("insecure");
  config["remote"] = {{"enabled", true}};
  serving_node node(write_config(scratch.path(), config), files.settings("node"));
  // A client whose certificate is of no authority that the node knows.
  const auto x = run_replay(arguments{"--attach", node.endpoint(), "--trace", "loogle:1,64,1,64", "--attach-limit", "8",
                                      "--set", "actors.tls.certificate=" + files.path("foreign.pem"), "--set",
                                      "actors.tls.key=" + files.path("foreign.key"), "--set",
                                      "actors.tls.ca=" + files.path("ca.pem")});
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("it refuses the certificate of this side: unknown CA") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("unreachable: a peer that answers without reachable pages is unreachable, is reported once, and comes back") {
  test_cluster nodes(2, {.page_bytes = 65536});
  nodes.fails_soon = true;
  // The second one requires encryption, and the first one has none as a client.
  bool at_odds = true;
  nodes.change = [&](std::size_t i, nlohmann::json& config) {
    config["remote"]["encrypt"] = i == 1 && at_odds;
    config["log_level"] = "debug";
  };
  nodes.start(0);
  nodes.start(1);
  auto& log = nodes.node(0).program();
  const auto first = log.wait_for_line(stream::err, "peer session not opened");
  CHECK(first.text.find("node 'node-1'") != std::string::npos);
  CHECK(first.text.find("requires encryption") != std::string::npos);
  CHECK(becomes(nodes, 0, "unreachable"));
  CHECK(nodes.status_in_one_line(0).find("requires encryption") != std::string::npos);
  CHECK(eventually([&] { return sum_of_metric(nodes.node(0), "troupe_degraded{reason=\"peer_unreachable\"") == 1; }));
  // It is tried again, and logged no more.
  auto at = first.index + 1;
  for (int i = 0; i < 3; ++i)
    at = log.wait_for_line(stream::err, "not retrying: ", at).index + 1;
  nodes.node(1).program().kill();
  nodes.all[1].reset();
  at_odds = false;
  nodes.start(1);
  log.wait_for_line(stream::err, "peer session opened");
  CHECK(becomes(nodes, 0, " up "));
  CHECK(count_of(nodes.node(0).log_so_far(), "peer session not opened") == 1);
  CHECK(eventually([&] { return sum_of_metric(nodes.node(0), "troupe_degraded{reason=\"peer_unreachable\"") == 0; }));
  check_clean(nodes.replay(1, small_trace), nodes.shape);
  check_clean(nodes.replay(0, small_trace), nodes.shape);
  nodes.stop_all();
}

} // namespace unreachable_test
