#include "tests/catch.hpp"
#include "tests/integration/listener.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <csignal>

namespace death_test {

/// Processes that die, freeze or are not what they seem, on both sides.

using namespace troupe::test;
using stream = process::stream;

namespace {

/// Long enough to be in the middle of, short enough to wait for its end.
constexpr const char* long_trace = "loogle:30,4096,20,128";
constexpr std::uint64_t long_trace_requests = 600;

/// How soon a silent peer counts as dead. Both sides need this setting.
const arguments quick_timeouts{"--set", "caf.heartbeat_interval=100 ms", "--set", "caf.connection_timeout=3 s"};

arguments operator+(arguments a, const arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool in_the_middle(const node_statistics& x) {
  return x.clients > 0 && x.keys > 500;
}

/// Properties of a replay that lost its node and attached to it, or to another one, again.
void check_survived(const replay_outcome& x, std::uint64_t requests) {
  INFO(x.err);
  INFO(x.report.dump());
  CHECK(x.code == 0);
  REQUIRE(x.report.is_object());
  CHECK(x.count("requests") == requests);
  CHECK(x.count("verify_failures") == 0);
}

/// Every slot of a node is accounted for once its clients have disconnected.
void check_rest(serving_node& node, const node_shape& shape) {
  const auto rest = node.wait_until_quiesced();
  for (const auto& x : rest.ranks) {
    CHECK(x.free + x.live == x.total);
    CHECK(x.total >= shape.slots);
  }
}

} // namespace

TEST_CASE("death: a replay whose node is killed ends with an error within its limit") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  process client(replay_command({"--attach", node.address(), "--trace", endless_trace, "--attach-limit", "2"}));
  node.wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 100; });
  node.program().kill();
  const auto x = result_of(client);
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("node 'tested' disconnected") != std::string::npos);
  CHECK(x.err.find("aborted after") != std::string::npos);
  CHECK(x.err.find(node.address()) != std::string::npos);
  REQUIRE(x.report.is_object()); // the work done until then
  CHECK(x.count("verify_failures") == 0);
}

TEST_CASE("death: a replay continues when its node is killed and restarted") {
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2};
  const auto config = write_config(scratch.path(), node_config(scratch.path(), shape));
  std::optional<serving_node> node(std::in_place, config);
  const auto port = std::to_string(node->port());
  const arguments how{"--attach", node->address(), "--trace", long_trace, "--attach-limit", "60"};
  process client(replay_command(how));
  for (int round = 0; round < 3; ++round) {
    INFO("round " << round);
    node->wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 300; });
    node->program().kill();
    node.emplace(config, arguments{"--set", "actors.port=" + port});
    node->wait_for_log("the registry starts empty");
  }
  check_survived(result_of(client), long_trace_requests);
  check_rest(*node, shape);
  // The pages of the last node are right.
  const auto after = run_replay(how);
  check_report(after, shape);
  CHECK(after.count("load_failures") == 0);
  CHECK(node->stop() == 0);
}

TEST_CASE("death: a client refuses a node that restarts with another namespace") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  config["remote"] = {{"enabled", true}};
  std::optional<serving_node> node(std::in_place, write_config(scratch.path(), config));
  const auto port = std::to_string(node->port());
  process client(replay_command({"--attach", node->endpoint(), "--trace", endless_trace, "--attach-limit", "60"}));
  node->wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 100; });
  node->program().kill();
  config["namespaces"][0]["salt"] = "pepper";
  config["data_dir"] = (scratch / "other").string();
  node.emplace(write_config(scratch.path(), config), arguments{"--set", "actors.port=" + port});
  const auto x = result_of(client);
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("identity_mismatch") != std::string::npos);
  CHECK(node->statistics().keys == 0);
  CHECK(node->stop() == 0);
}

TEST_CASE("death: a client killed during a replay leaves nothing behind") {
  const scratch_directory scratch;
  const node_shape shape{.slots = 256};
  auto config = node_config(scratch.path(), shape);
  // Only as much as needed is evicted, so that a replay can be made to need every slot. Each of several shards would
  // give its part, and a shard without pages of the dead client would keep pages of the replay.
  config["registry"]["shards"] = 1;
  config["storage"]["low_watermark"] = 0;
  config["storage"]["high_watermark"] = 0;
  serving_node node(write_config(scratch.path(), config));
  {
    process client(replay_command({"--attach", node.address(), "--trace", endless_trace, "--concurrency", "3"}));
    node.wait_for_statistics([](const auto& x) { return x.clients == 1 && x.evicted > 0; });
    // Stopped at a moment when it holds something, which is nearly every moment.
    client.send(SIGSTOP);
    auto held = node.statistics();
    for (int tries = 0; tries < 100 && held.leases == 0 && held.reservations == 0; ++tries) {
      client.send(SIGCONT);
      node.wait_for_statistics([&](const auto& x) { return x.evicted > held.evicted; });
      client.send(SIGSTOP);
      held = node.statistics();
    }
    CHECK(held.clients == 1);
    CHECK(held.leases + held.reservations > 0);
    client.kill();
  }
  node.program().wait_for_line(stream::err, "its leases and reservations are released");
  check_rest(node, shape);

  // Needs every slot: a lease or a reservation of the dead would be in the way.
  const auto trace = write_trace(scratch / "all", {ids(1, shape.slots)});
  const arguments how{"--attach", node.address(), "--trace", trace, "--concurrency", "1"};
  const auto x = run_replay(how);
  check_clean(x, shape);
  CHECK(x.count("saved_pages") == shape.slots * shape.ranks);
  const auto again = run_replay(how);
  check_clean(again, shape);
  CHECK(again.count("hit_blocks") == shape.slots);
  CHECK(node.stop() == 0);
}

TEST_CASE("death: repeated kills of clients leak nothing in the node") {
  const scratch_directory scratch;
  const node_shape shape{.slots = 256};
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)), {"--set", "io.max_clients=2"});
  for (int round = 0; round < 8; ++round) {
    INFO("round " << round);
    process client(replay_command({"--attach", node.address(), "--trace", endless_trace, "--concurrency", "2"}));
    const auto written = node.statistics().ranks[0].written;
    node.wait_for_statistics([&](const auto& x) { return x.clients == 1 && x.ranks[0].written > written + 50; });
    client.kill();
    node.wait_for_statistics([](const auto& x) { return x.clients == 0; });
  }
  check_rest(node, shape);
  CHECK(node.stop() == 0);
}

TEST_CASE("death: a client attaches again to a node that was frozen longer than its timeout") {
  const scratch_directory scratch;
  const node_shape shape{};
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)), quick_timeouts);
  process client(replay_command(arguments{"--attach", node.address(), "--trace", long_trace, "--attach-limit", "60"} +
                                quick_timeouts));
  node.wait_for_statistics(in_the_middle);
  node.program().send(SIGSTOP);
  client.wait_for_line(stream::err, "node 'tested' disconnected");
  node.program().send(SIGCONT);
  check_survived(result_of(client), long_trace_requests);
  check_rest(node, shape);
  node.wait_for_log("its leases and reservations are released");
  CHECK(node.stop() == 0);
}

TEST_CASE("death: a client does not wait longer than its limit for a frozen node") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())), quick_timeouts);
  process client(replay_command(arguments{"--attach", node.address(), "--trace", endless_trace, "--attach-limit", "2"} +
                                quick_timeouts));
  node.wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 100; });
  node.program().send(SIGSTOP);
  const auto x = result_of(client);
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("aborted after") != std::string::npos);
  node.program().send(SIGCONT);
  CHECK(node.stop() == 0);
}

TEST_CASE("death: a frozen client loses its leases and starts over when it resumes") {
  const scratch_directory scratch;
  const node_shape shape{.slots = 512};
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)), quick_timeouts);
  process client(replay_command(arguments{"--attach", node.address(), "--trace", long_trace, "--attach-limit", "60"} +
                                quick_timeouts));
  node.wait_for_statistics([](const auto& x) { return x.clients == 1 && x.keys > 300; });
  client.send(SIGSTOP);
  node.program().wait_for_line(stream::err, "its leases and reservations are released");
  check_rest(node, shape);
  // Meanwhile another client uses every slot that it had.
  check_report(run_replay(arguments{"--attach", node.address(), "--trace", "loogle:10,4096,2,128", "--salt", "9"} +
                          quick_timeouts),
               shape);
  client.send(SIGCONT);
  check_survived(result_of(client), long_trace_requests);
  check_rest(node, shape);
  CHECK(node.stop() == 0);
}

TEST_CASE("death: frames that a disconnected client may access are not reused until its process exits") {
  // The trace is far larger than the node, so that copies are in progress at nearly every moment and frames are
  // requested all the time.
  const node_shape shape{.page_bytes = std::uint64_t{1} << 20U, .slots = 64, .memory_bytes = std::uint64_t{48} << 20U};
  const scratch_directory scratch;
  auto config = node_config(scratch.path(), shape);
  config["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  serving_node node(write_config(scratch.path(), config), quick_timeouts);
  process client(replay_command(arguments{"--attach", node.address(), "--trace", endless_trace, "--concurrency", "4"} +
                                quick_timeouts));
  const auto pinned = [&] { return sum_of_metric(node, "troupe_memory_pinned_frames{"); };
  auto last = node.wait_for_statistics([](const auto& x) { return x.clients == 1 && x.evicted > 0; });
  // The client is stopped while it holds pins, which is nearly every moment. The node may have read its last messages
  // only by the time of the statistics.
  const auto stop_client = [&] {
    client.send(SIGSTOP);
    last = node.statistics();
  };
  stop_client();
  for (int tries = 0; tries < 100 && pinned() == 0; ++tries) {
    client.send(SIGCONT);
    node.wait_for_statistics([&](const auto& x) { return x.clients == 1 && x.evicted > last.evicted; });
    stop_client();
  }
  // For the node the client has disconnected, and its leases are released; but its process may resume copying at any
  // moment.
  node.wait_for_log("its leases and reservations are released");
  CHECK(node.wait_for_statistics([](const auto& x) { return x.clients == 0; }).leases == 0);
  // Its later messages cannot change that.
  const auto held = pinned();
  REQUIRE(held > 0);
  // Others need every place that there is.
  check_report(run_replay(arguments{"--attach", node.address(), "--trace", "loogle:20,4096,2,128", "--salt", "9"} +
                          quick_timeouts),
               shape);
  CHECK(pinned() == held);
  CHECK(sum_of_metric(node, "troupe_disconnected_clients") == 1);
  client.kill();
  CHECK(eventually([&] { return pinned() == 0 && sum_of_metric(node, "troupe_disconnected_clients") == 0; }));
  check_rest(node, shape);
  CHECK(node.stop() == 0);
}

TEST_CASE("death: attaching to a server that is no node ends with an error within the limit") {
  const auto how =
      GENERATE(listener::manner::silent, listener::manner::closes, listener::manner::garbage, listener::manner::http);
  listener other(how);
  const auto x = run_replay({"--attach", "127.0.0.1:" + std::to_string(other.port()), "--trace", "loogle:1,64,1,64",
                             "--attach-limit", "2", "--set", "attach.request_timeout=1 s"});
  INFO("manner " << static_cast<int>(how) << ": " << x.err);
  CHECK(x.code == 1);
  CHECK(x.report.is_null());
  CHECK(x.err.find("127.0.0.1:" + std::to_string(other.port())) != std::string::npos);
  CHECK(other.connections() > 0);
}

TEST_CASE("death: attaching to a dead port ends with an error within the limit") {
  std::uint16_t port = 0;
  {
    const listener gone(listener::manner::silent);
    port = gone.port();
  }
  const auto address = "127.0.0.1:" + std::to_string(port);
  const auto x = run_replay({"--attach", address, "--trace", "loogle:1,64,1,64", "--attach-limit", "8"});
  INFO(x.err);
  CHECK(x.err.find("connection refused") != std::string::npos);
  CHECK(x.code == 1);
  CHECK(x.report.is_null());
  CHECK(x.err.find("cannot reach a node at " + address) != std::string::npos);
}

TEST_CASE("death: a client waits for a node that is started later") {
  const scratch_directory scratch;
  const auto socket = (scratch.path() / "data" / "troupe.sock").string();
  process client(replay_command(
      {"--attach", socket, "--trace", "loogle:2,1024,3,128", "--attach-limit", "60", "--set", "log_level=debug"}));
  client.wait_for_line(stream::err, "cannot reach a node");
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  check_clean(result_of(client), {});
  CHECK(node.stop() == 0);
}

TEST_CASE("death: garbage on a node's port does not disturb its clients") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  process client(replay_command({"--attach", node.address(), "--trace", long_trace, "--concurrency", "2"}));
  node.wait_for_statistics([](const auto& x) { return x.clients == 1; });
  for (std::uint32_t seed = 0; seed < 20; ++seed)
    send_garbage(node.port(), seed);
  const auto x = result_of(client);
  check_report(x, {});
  CHECK(x.code == 0);
  CHECK(x.count("load_failures") == 0);
  CHECK(node.stop() == 0);
}

} // namespace death_test
