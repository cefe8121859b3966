#include "tests/catch.hpp"
#include "tests/integration/certificates.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/metrics_page.hpp"

namespace ipv6_test {

/// Nodes and clients that reach each other over IPv6 alone.

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";
constexpr const char* host = "::1";

const arguments one_at_a_time{"--concurrency", "1"};

void use_ipv6(nlohmann::json& config) {
  config["actors"]["host"] = host;
  for (auto& seed : config["cluster"]["seeds"])
    seed["host"] = host;
}

} // namespace

TEST_CASE("ipv6: nodes that listen on an IPv6 address exchange pages byte for byte") {
  test_cluster nodes(2, {.ranks = 2, .page_bytes = 65536});
  nodes.change = [](std::size_t, nlohmann::json& config) { use_ipv6(config); };
  nodes.start_all();
  const auto model = expected(small_trace);
  check_clean(nodes.replay(0, small_trace, one_at_a_time), nodes.shape);
  const auto second = nodes.replay(1, small_trace, one_at_a_time);
  check_clean(second, nodes.shape);
  CHECK(second.count("hit_blocks") == model.blocks);
  const auto pages = static_cast<double>(model.unique_blocks) * nodes.shape.ranks;
  CHECK(sum_of_metric(nodes.node(0), "troupe_remote_pages_total") == pages);
  CHECK(sum_of_metric(nodes.node(0), "troupe_remote_failed_pages_total") == 0);
  const auto status = nodes.status(1);
  CHECK(status.find("[::1]:" + std::to_string(nodes.ports[0])) != std::string::npos);
  CHECK(status.find(" up ") != std::string::npos);
  CHECK(status.find(" self ") != std::string::npos);
  nodes.stop_all();
}

TEST_CASE("ipv6: a client attaches over IPv6 with certificates, saves and loads") {
  if (!std::filesystem::exists("/usr/bin/openssl"))
    return;
  const scratch_directory scratch;
  const certificates files(scratch.path());
  const node_shape shape{.page_bytes = 65536};
  auto config = node_config(scratch.path(), shape);
  config["actors"]["host"] = host;
  config["actors"].erase("insecure");
  config["remote"] = {{"enabled", true}, {"streams", 3}};
  serving_node node(write_config(scratch.path(), config), files.settings("node"));
  const auto client =
      run_replay(arguments{"--attach", "[::1]:" + std::to_string(node.port()), "--set", "remote.streams=3", "--set",
                           "attach.always_remote=true", "--trace", small_trace} +
                 files.settings("engine"));
  check_clean(client, shape);
  CHECK(client.count("hit_blocks") > 0);
  CHECK(node.stop() == 0);
}

} // namespace ipv6_test
