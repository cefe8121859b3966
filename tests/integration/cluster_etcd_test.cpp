#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/etcd_server.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/patience.hpp"

#include <csignal>

namespace cluster_etcd_test {

/// Nodes that find each other by a real etcd, which is killed, made anew, and stands still.

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";

struct listed_cluster : test_cluster {
  /// With room for all that is saved, so that nothing is missed for another reason.
  listed_cluster(std::size_t nodes, const etcd_server& etcd)
      : test_cluster(nodes, {.page_bytes = 65536, .slots = 6144}) {
    options = {{"etcd", etcd.config()}};
  }

  bool has_shortcoming(std::size_t i, const char* text) {
    return http(node(i), "GET", "/ready").body.find(text) != std::string::npos;
  }
  bool is_ready(std::size_t i) { return http(node(i), "GET", "/ready").status == 200; }

  /// In the end each of these nodes is in the list, of so many.
  void wait_for_list(std::initializer_list<std::size_t> which, double count) {
    for (const auto i : which)
      REQUIRE(eventually(
          [&] {
            return sum_of_metric(node(i), "troupe_etcd_registered") == 1 &&
                   sum_of_metric(node(i), "troupe_etcd_listed_nodes") == count;
          },
          std::chrono::milliseconds(100)));
  }

  /// What an engine saves at one node, one at another finds, every byte of it. A link that is new may take a moment.
  void check_shared(std::size_t from, std::size_t to) {
    const auto salt = std::to_string(++salt_);
    check_clean(replay(from, small_trace, {"--salt", salt}), shape);
    const auto found = replay(to, small_trace, {"--salt", salt});
    check_clean(found, shape);
    CHECK(found.count("hit_blocks") == expected(small_trace).blocks);
  }

private:
  int salt_ = 0;
};

} // namespace

TEST_CASE("nodes find each other by etcd alone, one joins, one is killed, one leaves") {
  const auto program = etcd_program();
  if (!program)
    return;
  etcd_server etcd(*program);
  listed_cluster nodes(3, etcd);
  nodes.start(0);
  nodes.start(1);
  nodes.wait_for_peers(0, 1);
  nodes.wait_for_peers(1, 1);
  nodes.check_shared(0, 1);

  auto seen = nodes.node(0).log_mark();
  nodes.start(2);
  nodes.wait_for_peers(2, 2);
  nodes.wait_for_peers(0, 1, seen);
  nodes.check_shared(1, 2);
  nodes.check_shared(2, 0);
  nodes.wait_for_list({0, 1, 2}, 3);
  const auto status = nodes.status(0);
  INFO(status);
  CHECK(status.find(": up, 3 nodes are listed") != std::string::npos);

  // Killed: away as long as its lease lasts, then nobody's trouble.
  seen = nodes.node(0).log_mark();
  nodes.node(1).program().kill();
  nodes.all[1].reset();
  nodes.node(0).program().wait_for_line(stream::err, "is away", seen);
  nodes.check_shared(2, 0);
  nodes.node(0).program().wait_for_line(stream::err, "is left out", seen);
  CHECK_FALSE(nodes.has_shortcoming(0, "another node of the cluster is away"));
  const auto series = "peer=\"127.0.0.1:" + std::to_string(nodes.ports[1]);
  CHECK(eventually([&] { return http(nodes.node(0), "GET", "/metrics").body.find(series) == std::string::npos; },
                   std::chrono::milliseconds(100)));

  // Back, at its old place.
  seen = nodes.node(0).log_mark();
  nodes.start(1);
  nodes.wait_for_peers(1, 2);
  nodes.wait_for_peers(0, 1, seen);
  nodes.check_shared(0, 1);

  // One that is stopped says so.
  seen = nodes.node(0).log_mark();
  CHECK(nodes.node(2).stop() == 0);
  nodes.all[2].reset();
  nodes.node(0).program().wait_for_line(stream::err, "is left out", seen);
  nodes.wait_for_list({0, 1}, 2);
  nodes.check_shared(1, 0);
  nodes.stop_all();
}

TEST_CASE("an etcd that is killed, stands still, or has lost everything costs no page") {
  const auto program = etcd_program();
  if (!program)
    return;
  etcd_server etcd(*program);
  listed_cluster nodes(3, etcd);
  nodes.start_all();
  nodes.wait_for_list({0, 1, 2}, 3);
  const auto wait_for = [&](const char* text, const std::vector<std::size_t>& from) {
    for (std::size_t i = 0; i < 3; ++i)
      nodes.node(i).program().wait_for_line(stream::err, text, from[i]);
  };
  const auto lines = [&] {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < 3; ++i)
      out.push_back(nodes.node(i).log_mark());
    return out;
  };
  const auto check_without = [&](const char* what) {
    INFO(what);
    CHECK(nodes.has_shortcoming(0, "etcd"));
    CHECK(nodes.is_ready(0));
    CHECK(sum_of_metric(nodes.node(0), "troupe_degraded{reason=\"etcd_away\"}") == 1);
    nodes.check_shared(0, 1);
    nodes.check_shared(1, 2);
    CHECK(nodes.status(1).find(": away, 3 nodes are listed; ") != std::string::npos);
  };

  auto seen = lines();
  etcd.kill();
  wait_for("cannot be read", seen);
  check_without("killed");
  etcd.start();
  wait_for("answers again", seen);
  nodes.check_shared(2, 0);

  // While engines are at work, and longer than leases last.
  process engine(nodes.engine(1, "loogle:30,2048,3,128", {"--salt", "77"}));
  seen = lines();
  etcd.send(SIGSTOP);
  wait_for("cannot be read", seen);
  check_clean(result_of(engine), nodes.shape);
  check_without("stands still");
  etcd.send(SIGCONT);
  wait_for("answers again", seen);
  nodes.wait_for_list({0, 1, 2}, 3);
  nodes.check_shared(1, 0);

  seen = lines();
  etcd.kill();
  etcd.forget_all();
  wait_for("cannot be read", seen);
  etcd.start();
  nodes.wait_for_list({0, 1, 2}, 3);
  nodes.check_shared(2, 1);
  CHECK_FALSE(nodes.has_shortcoming(0, "etcd"));
  nodes.stop_all();
}

} // namespace cluster_etcd_test
