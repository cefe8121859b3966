#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <deque>
#include <thread>

namespace cluster_network_test {

/// Nodes on hosts of their own, over a network that is slow, lossy, and falls apart. Engines are on each host; what
/// they load they compare, every byte of it.

using namespace troupe::test;
using namespace std::chrono_literals;
using stream = process::stream;

namespace {

constexpr std::size_t three = 3;
/// The time that a lookup may take beyond its wait for other nodes, on a busy machine.
constexpr double longest_lookup_us = 20e6;

struct far_cluster : test_cluster {
  far_cluster(const network& over, node_shape of = {.page_bytes = 16384, .slots = 4096})
      : test_cluster(three, of, "far", &over) {
    fails_soon = true;
  }

  /// The trace on each host, at once.
  void run_everywhere(const std::string& trace, const arguments& more = {}) {
    std::deque<process> engines;
    for (std::size_t i = 0; i < three; ++i)
      engines.emplace_back(engine(i, trace, more));
    for (auto& x : engines)
      check(result_of(x));
  }
  void check(const replay_outcome& x) const {
    check_clean(x, shape);
    CHECK(x.report.at("lookup_us").at("max").get<double>() < longest_lookup_us);
  }
  /// Until an engine of `to` finds what one of `from` has saved a moment ago. New contents each time.
  void until_found(std::size_t from, std::size_t to) {
    const auto blocks = expected(probe_trace).blocks;
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
      const arguments salt{"--salt", std::to_string(++last_salt)};
      check(replay(from, probe_trace, salt));
      const auto found = replay(to, probe_trace, salt);
      check(found);
      if (found.count("hit_blocks") == blocks)
        return;
      INFO(node(to).log_so_far());
      REQUIRE(std::chrono::steady_clock::now() < end);
    }
  }
  /// From each to each other.
  void until_all_found() {
    for (std::size_t i = 0; i < three; ++i)
      until_found(i, (i + 1) % three);
    for (std::size_t i = 0; i < three; ++i)
      until_found(i, (i + 2) % three);
  }
  void wait_until_away(std::size_t who, std::size_t whom, std::size_t from) {
    const auto mark = network::address(whom) + ":7000 (";
    node(who).program().wait_for_line(stream::err, mark, from);
  }

  static constexpr const char* probe_trace = "loogle:1,2048,2,128";
  int last_salt = 1000;
};

/// False, with a word, where this user may make no networks.
bool there_is(const network& x) {
  if (!x)
    WARN("skipped: this user may not make network namespaces");
  return static_cast<bool>(x);
}

constexpr const char* long_trace = "loogle:12,2048,6,128";

} // namespace

TEST_CASE("cluster network: engines on three hosts find each other's pages over a slow network with packet loss") {
  network hosts(three);
  if (!there_is(hosts))
    return;
  far_cluster nodes(hosts);
  nodes.start_all();
  const auto model = expected(long_trace);
  nodes.check(nodes.replay(0, long_trace));
  for (std::size_t i = 0; i < three; ++i)
    hosts.set_quality(i, {.delay = 3ms, .jitter = 2ms, .lost = 10'000});
  // A node without pages gets all of them, whichever node has them.
  for (const std::size_t i : {1U, 2U}) {
    const auto found = nodes.replay(i, long_trace, {"--concurrency", "1"});
    nodes.check(found);
    CHECK(found.count("hit_blocks") > model.hit_blocks);
  }
  CHECK(hosts.lost() > 0);
  // All at once, and what one computes the others may have first.
  nodes.run_everywhere(long_trace, {"--salt", "5"});
  for (std::size_t i = 0; i < three; ++i)
    hosts.set_quality(i, {});
  nodes.until_all_found();
  nodes.stop_all();
}

TEST_CASE("cluster network: network partitions cost only hits until they heal") {
  network hosts(three, 2);
  if (!there_is(hosts))
    return;
  far_cluster nodes(hosts);
  nodes.start_all();
  nodes.until_found(0, 1);
  const auto begin_all = [&](const char* salt) {
    std::deque<process> out;
    for (std::size_t i = 0; i < three; ++i)
      out.emplace_back(nodes.engine(i, "loogle:30,2048,6,128", {"--salt", salt}));
    nodes.node(0).wait_for_statistics([](const auto& x) { return x.clients > 3 && x.keys > 100; });
    return out;
  };
  const auto lines_of = [&](std::size_t i) { return nodes.node(i).log_mark(); };

  // While all nodes are busy.
  auto engines = begin_all("11");
  auto seen = lines_of(0);
  hosts.cable(2, false);
  nodes.wait_until_away(0, 2, seen);
  for (auto& x : engines)
    nodes.check(result_of(x));
  // Each lookup is answered while it is unreachable, and both sides go on with what they have.
  nodes.run_everywhere("loogle:4,2048,4,128", {"--salt", "12"});
  nodes.until_found(0, 1);
  hosts.cable(2, true);
  nodes.until_all_found();

  // Only these two are separated, and a third one can reach both: it sees no partition.
  engines = begin_all("13");
  seen = lines_of(0);
  hosts.reach(0, 1, false);
  nodes.wait_until_away(0, 1, seen);
  for (auto& x : engines)
    nodes.check(result_of(x));
  nodes.until_found(0, 2);
  nodes.until_found(2, 1);
  hosts.reach(0, 1, true);
  nodes.until_all_found();
  nodes.stop_all();
}

TEST_CASE("cluster network: a node on a slow link delays a lookup by the configured limit at most") {
  network hosts(three, 3);
  if (!there_is(hosts))
    return;
  far_cluster nodes(hosts);
  nodes.start_all();
  // Its pages are worth fetching, which takes longer than a lookup waits.
  nodes.check(nodes.replay(2, long_trace));
  hosts.set_quality(2, {.delay = 20ms, .bytes_per_second = 400'000});
  nodes.check(nodes.replay(0, long_trace, {"--limit", "12"}));
  nodes.check(nodes.replay(1, "loogle:4,2048,4,128", {"--salt", "3"}));
  // The two others have each other meanwhile.
  nodes.until_found(0, 1);
  hosts.set_quality(2, {});
  nodes.until_all_found();
  nodes.stop_all();
}

TEST_CASE("cluster network: on a bad network each node is killed and restarted in turn and all pages are found again") {
  network hosts(three, 4);
  if (!there_is(hosts))
    return;
  far_cluster nodes(hosts);
  nodes.start_all();
  for (std::size_t i = 0; i < three; ++i)
    hosts.set_quality(i, {.delay = 2ms, .jitter = 1ms, .lost = 5'000});
  for (std::size_t victim = 0; victim < three; ++victim) {
    const auto first = (victim + 1) % three;
    const auto second = (victim + 2) % three;
    const auto salt = std::to_string(20 + victim);
    nodes.check(nodes.replay(victim, long_trace, {"--salt", salt}));
    process one(nodes.engine(first, long_trace, {"--salt", salt}));
    process two(nodes.engine(second, long_trace, {"--salt", salt}));
    const auto seen = nodes.node(first).log_mark();
    nodes.node(first).wait_for_statistics([](const auto& x) { return x.clients > 3; });
    nodes.node(victim).program().kill();
    nodes.check(result_of(one));
    nodes.check(result_of(two));
    nodes.wait_until_away(first, victim, seen);
    nodes.all[victim].reset();
    nodes.start(victim);
    nodes.until_found(victim, first);
    nodes.until_found(first, victim);
  }
  for (std::size_t i = 0; i < three; ++i)
    hosts.set_quality(i, {});
  nodes.until_all_found();
  nodes.stop_all();
}

} // namespace cluster_network_test
