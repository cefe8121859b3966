#include "http_client/connection.hpp"
#include "tests/catch.hpp"
#include "tests/integration/clusters.hpp"
#include "tests/integration/etcd_server.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/patience.hpp"

#include <csignal>
#include <filesystem>
#include <iterator>
#include <string_view>

namespace cluster_etcd_test {

/// Nodes that find each other through a real etcd, which is killed, recreated and frozen.

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";

struct listed_cluster : test_cluster {
  /// With room for all saved pages, so that no page is missed for another reason.
  listed_cluster(std::size_t nodes, const etcd_server& etcd)
      : test_cluster(nodes, {.page_bytes = 65536, .slots = 6144}) {
    options = {{"etcd", etcd.config()}};
  }

  bool has_degradation(std::size_t i, const char* text) {
    return http(node(i), "GET", "/ready").body.find(text) != std::string::npos;
  }
  bool is_ready(std::size_t i) { return http(node(i), "GET", "/ready").status == 200; }

  /// Waits until each of these nodes is in the list, out of so many.
  void wait_for_list(std::initializer_list<std::size_t> which, double count) {
    for (const auto i : which)
      REQUIRE(eventually(
          [&] {
            return sum_of_metric(node(i), "troupe_etcd_registered") == 1 &&
                   sum_of_metric(node(i), "troupe_etcd_listed_nodes") == count;
          },
          std::chrono::milliseconds(100)));
  }

  /// A page saved at one node is found at another one, every byte of it. A new connection may take a moment.
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

/// Another program that writes below the nodes' prefix.
class etcd_writer {
public:
  explicit etcd_writer(const etcd_server& etcd) : url_("http://127.0.0.1:" + std::to_string(etcd.port())) {}

  /// Entries of nodes that do not exist, at ports without a listener.
  void list_false_nodes(int count) {
    lease_ = post("/v3/lease/grant", {{"TTL", 3600}}).at("ID");
    for (int i = 0; i < count; ++i) {
      const nlohmann::json value{{"node", "false-" + std::to_string(i)}, {"incarnation", std::to_string(i + 1)}};
      post("/v3/kv/put", {{"key", base64("/troupe/here/nodes/127.0.0.1:" + std::to_string(i + 1))},
                          {"value", base64(value.dump())},
                          {"lease", lease_}});
    }
  }
  void remove_false_nodes() { post("/v3/lease/revoke", {{"ID", lease_}}); }

private:
  static std::string base64(std::string_view bytes) {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
      std::uint32_t group = 0;
      for (std::size_t k = 0; k < 3; ++k)
        group = group << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
      for (std::size_t k = 0; k < 4; ++k)
        out += i + k <= bytes.size() ? digits[group >> (18U - 6U * static_cast<unsigned>(k)) & 63U] : '=';
    }
    return out;
  }

  nlohmann::json post(const std::string& path, const nlohmann::json& what) {
    using namespace troupe::client_detail;
    const auto until = std::chrono::steady_clock::now() + test_patience;
    auto open = connection::open(*parse_url(url_), nullptr, until);
    REQUIRE(open);
    const auto body = what.dump();
    const auto answer =
        (*open)->exchange("POST " + path + " HTTP/1.1\r\nHost: etcd\r\nContent-Length: " + std::to_string(body.size()) +
                              "\r\n\r\n" + body,
                          1U << 20U, until);
    REQUIRE(answer);
    INFO(path << ": " << answer->body);
    REQUIRE(answer->status == 200);
    return nlohmann::json::parse(answer->body);
  }

  std::string url_;
  nlohmann::json lease_;
};

std::ptrdiff_t threads_of(serving_node& node) {
  const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(node.program().id()) + "/task");
  return std::distance(begin(tasks), end(tasks));
}

} // namespace

TEST_CASE("cluster etcd: nodes find each other through etcd alone while one joins, one is killed and one leaves") {
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
  const auto status = nodes.status_in_one_line(0);
  INFO(status);
  CHECK(status.find(": up, 3 nodes are listed") != std::string::npos);

  // Killed: unreachable until its lease expires, and then removed without an effect on others.
  seen = nodes.node(0).log_mark();
  nodes.node(1).program().kill();
  nodes.all[1].reset();
  nodes.node(0).program().wait_for_line(stream::err, "peer disconnected", seen);
  nodes.check_shared(2, 0);
  nodes.node(0).program().wait_for_line(stream::err, "peer removed", seen);
  CHECK_FALSE(nodes.has_degradation(0, "a peer is unreachable"));
  const auto series = "peer=\"127.0.0.1:" + std::to_string(nodes.ports[1]);
  CHECK(eventually([&] { return http(nodes.node(0), "GET", "/metrics").body.find(series) == std::string::npos; },
                   std::chrono::milliseconds(100)));

  // Back, at its old place.
  seen = nodes.node(0).log_mark();
  nodes.start(1);
  nodes.wait_for_peers(1, 2);
  nodes.wait_for_peers(0, 1, seen);
  nodes.check_shared(0, 1);

  // A node that is stopped removes its entry.
  seen = nodes.node(0).log_mark();
  CHECK(nodes.node(2).stop() == 0);
  nodes.all[2].reset();
  nodes.node(0).program().wait_for_line(stream::err, "peer removed", seen);
  nodes.wait_for_list({0, 1}, 2);
  nodes.check_shared(1, 0);
  nodes.stop_all();
}

TEST_CASE("cluster etcd: an etcd that is killed, frozen or emptied costs no page") {
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
    CHECK(nodes.has_degradation(0, "etcd"));
    CHECK(nodes.is_ready(0));
    CHECK(sum_of_metric(nodes.node(0), "troupe_degraded{reason=\"etcd_unreachable\"}") == 1);
    nodes.check_shared(0, 1);
    nodes.check_shared(1, 2);
    CHECK(nodes.status_in_one_line(1).find(": unreachable, 3 nodes are listed; ") != std::string::npos);
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
  CHECK_FALSE(nodes.has_degradation(0, "etcd"));
  nodes.stop_all();
}

TEST_CASE("cluster etcd: removed etcd entries of unreachable nodes leave no threads behind") {
  const auto program = etcd_program();
  if (!program)
    return;
  etcd_server etcd(*program);
  listed_cluster nodes(1, etcd);
  nodes.fails_soon = true;
  nodes.start(0);
  nodes.wait_for_list({0}, 1);
  const auto before = threads_of(nodes.node(0));

  constexpr int false_nodes = 40;
  etcd_writer other(etcd);
  other.list_false_nodes(false_nodes);
  nodes.wait_for_list({0}, 1 + false_nodes);
  // Each has one that connects to it, in a thread of its own. Some threads of the start may have ended since.
  constexpr int others = false_nodes / 4;
  REQUIRE(eventually([&] { return threads_of(nodes.node(0)) > before + false_nodes - others; },
                     std::chrono::milliseconds(100)));

  other.remove_false_nodes();
  nodes.wait_for_list({0}, 1);
  // A few are kept for the next peers.
  CHECK(eventually([&] { return threads_of(nodes.node(0)) < before + others; }, std::chrono::milliseconds(100)));
  nodes.stop_all();
}

} // namespace cluster_etcd_test
