#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <array>
#include <csignal>
#include <cstdint>
#include <sstream>
#include <unistd.h>

namespace hosts_test {

/// Clients that cannot map the memory of their node, and exchange pages with it.

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";

/// How soon a silent peer counts as dead.
const arguments quick_timeouts{"--set", "caf.heartbeat_interval=200 ms", "--set", "caf.connection_timeout=4 s"};

arguments operator+(arguments a, const arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

nlohmann::json config_for_hosts(const std::filesystem::path& directory, const node_shape& shape = {},
                                const std::string& transport = "tcp") {
  auto out = node_config(directory, shape);
  out["remote"] = {{"enabled", true}, {"transport", transport}, {"stall_time", "2 s"}};
  if (transport == "ucx")
    out["remote"]["ucx_interfaces"] = "lo";
  return out;
}

arguments from_elsewhere(const serving_node& node, const std::string& transport = "tcp") {
  return {"--attach", node.endpoint(), "--set", "attach.always_remote=true", "--set", "remote.transport=" + transport};
}

bool is_there(const std::string& transport) {
  return transport != "ucx" || there_is_ucx();
}

bool in_the_middle(const node_statistics& x) {
  return x.clients > 0 && x.keys > 300;
}

void check_rest(serving_node& node, const node_shape& shape) {
  const auto rest = node.wait_until_quiesced();
  for (const auto& x : rest.ranks) {
    CHECK(x.free + x.live == x.total);
    CHECK(x.total >= shape.slots);
  }
}

} // namespace

TEST_CASE("hosts: a client on another host saves and loads every byte and finds pages of others") {
  const std::string transport = GENERATE("tcp", "ucx");
  if (!is_there(transport))
    return;
  const scratch_directory scratch;
  const auto page_bytes = GENERATE(std::uint64_t{4096}, std::uint64_t{262144});
  const node_shape shape{.ranks = 2, .page_bytes = page_bytes};
  serving_node node(write_config(scratch.path(), config_for_hosts(scratch.path(), shape, transport)));
  const auto model = expected(small_trace);
  const arguments what{"--trace", small_trace, "--concurrency", "4"};

  const auto first = run_replay(from_elsewhere(node, transport) + what);
  check_clean(first, shape);
  CHECK(first.count("saved_pages") == model.unique_blocks * shape.ranks);
  const auto second = run_replay(from_elsewhere(node, transport) + what);
  check_clean(second, shape);
  CHECK(second.count("hit_blocks") == model.blocks);
  // Pages of a client that maps the memory, and the other way round.
  const auto near = run_replay(arguments{"--attach", node.address()} + what);
  check_clean(near, shape);
  CHECK(near.count("hit_blocks") == model.blocks);
  check_clean(run_replay(arguments{"--attach", node.address(), "--salt", "2"} + what), shape);
  const auto far = run_replay(from_elsewhere(node, transport) + arguments{"--salt", "2"} + what);
  check_clean(far, shape);
  CHECK(far.count("hit_blocks") == model.blocks);
  // Through both halves of a connector.
  const auto engine = [&] {
    auto x = run_replay(from_elsewhere(node, transport) + arguments{"--trace", small_trace, "--engine", "--salt", "3"});
    INFO(x.err);
    CHECK(x.code == 0);
    CHECK(x.count("wrong_tokens") == 0);
    return x;
  };
  // On a busy machine the first may find nothing, as its own saves have not ended when it looks.
  engine();
  CHECK(engine().count("loaded_bytes") > 0);
  check_rest(node, shape);
  CHECK(node.stop() == 0);
}

TEST_CASE("hosts: a client on another host loads pages from the node's disk") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536, .slots = 2048, .memory_bytes = little_memory};
  serving_node node(write_config(scratch.path(), config_for_hosts(scratch.path(), shape)));
  const arguments what = from_elsewhere(node) + arguments{"--trace", "loogle:6,2048,4,128"};
  check_clean(run_replay(what), shape);
  const auto second = run_replay(what);
  check_clean(second, shape);
  CHECK(second.count("loaded_from_disk") > 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("hosts: a remote client works with little memory and is refused below two pages with the setting to change") {
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536};
  serving_node node(write_config(scratch.path(), config_for_hosts(scratch.path(), shape)));
  const auto with = [&](const char* bytes) {
    return run_replay(from_elsewhere(node) + arguments{"--trace", "loogle:2,1024,3,128", "--concurrency", "8", "--set",
                                                       std::string("transfer.remote_bytes=") + bytes});
  };
  check_clean(with("160 KiB"), shape);
  const auto refused = with("100 KiB");
  INFO(refused.err);
  CHECK(refused.code == 1);
  CHECK(refused.err.find("transfer.remote_bytes") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("hosts: a client on another host that is killed or frozen leaves nothing behind") {
  const std::string transport = GENERATE("tcp", "ucx");
  if (!is_there(transport))
    return;
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536, .slots = 512};
  auto config = config_for_hosts(scratch.path(), shape, transport);
  serving_node node(write_config(scratch.path(), config), quick_timeouts);
  const bool stands_still = GENERATE(false, true);
  for (int round = 0; round < 3; ++round) {
    process client(replay_command(
        from_elsewhere(node, transport) +
        arguments{"--trace", endless_trace, "--concurrency", "8", "--salt", std::to_string(round)} + quick_timeouts));
    node.wait_for_statistics(in_the_middle);
    if (stands_still)
      client.send(SIGSTOP);
    else
      client.kill();
    check_rest(node, shape);
    if (!stands_still)
      continue;
    // When it resumes, its transfers in flight reach memory that is not in use, and it attaches again.
    client.send(SIGCONT);
    node.wait_for_statistics([](const auto& x) { return x.clients > 0; });
    client.send(SIGTERM);
    const auto ended = result_of(client);
    INFO(ended.err);
    if (ended.report.is_object()) // it was bound already
      CHECK(ended.count("verify_failures") == 0);
    check_rest(node, shape);
  }
  // Pages that are found are right.
  const auto after = run_replay(from_elsewhere(node, transport) + arguments{"--trace", endless_trace, "--limit", "40"});
  check_report(after, shape);
  CHECK(after.code == 0);
  CHECK(after.count("load_failures") == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("hosts: a client on another host attaches again after its node was killed") {
  const std::string transport = GENERATE("tcp", "ucx");
  if (!is_there(transport))
    return;
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536};
  const auto config = write_config(scratch.path(), config_for_hosts(scratch.path(), shape, transport));
  std::optional<serving_node> node(std::in_place, config);
  const auto port = std::to_string(node->port());
  process client(replay_command(from_elsewhere(*node, transport) +
                                arguments{"--trace", "loogle:40,4096,10,128", "--attach-limit", "60"}));
  for (int round = 0; round < 2; ++round) {
    node->wait_for_statistics([](const auto& x) { return x.clients > 0 && x.keys > 200; });
    node->program().kill();
    node.emplace(config, arguments{"--set", "actors.port=" + port});
  }
  const auto x = result_of(client);
  INFO(x.err);
  CHECK(x.code == 0);
  REQUIRE(x.report.is_object());
  CHECK(x.count("verify_failures") == 0);
  check_rest(*node, shape);
  // The node never returns: the client fails within its limit.
  process last(replay_command(from_elsewhere(*node, transport) +
                              arguments{"--trace", endless_trace, "--salt", "9", "--attach-limit", "2"}));
  const auto evicted = node->statistics().evicted;
  node->wait_for_statistics([&](const auto& s) { return s.clients > 0 && s.evicted > evicted + 100; });
  node->program().kill();
  const auto cancelled = result_of(last);
  INFO(cancelled.err);
  CHECK(cancelled.code == 1);
  REQUIRE(cancelled.report.is_object());
  CHECK(cancelled.count("verify_failures") == 0);
}

namespace {

/// Two network namespaces with a cable between them, for as long as this lives. Empty where this user may not.
class two_hosts {
public:
  /// With a second cable, the hosts have 10.231.8.1 and .2 as well.
  explicit two_hosts(bool second_cable = false) : name_("troupe" + std::to_string(::getpid())) {
    remove(); // left by a test that was killed, whose number this process has now
    there_ = shell(
        "ip netns add " + a() + " && ip netns add " + b() + " && ip link add " + name_ + "a type veth peer name " +
        name_ + "b && ip link set " + name_ + "a netns " + a() + " && ip link set " + name_ + "b netns " + b() +
        " && " +
        in_a("ip addr add 10.231.7.1/24 dev " + name_ + "a && ip link set " + name_ + "a up && ip link set lo up") +
        " && " +
        in_b("ip addr add 10.231.7.2/24 dev " + name_ + "b && ip link set " + name_ + "b up && ip link set lo up"));
    if (there_ && second_cable)
      there_ = shell("ip link add " + name_ + "c type veth peer name " + name_ + "d && ip link set " + name_ +
                     "c netns " + a() + " && ip link set " + name_ + "d netns " + b() + " && " +
                     in_a("ip addr add 10.231.8.1/24 dev " + name_ + "c && ip link set " + name_ + "c up") + " && " +
                     in_b("ip addr add 10.231.8.2/24 dev " + name_ + "d && ip link set " + name_ + "d up"));
  }
  two_hosts(const two_hosts&) = delete;
  two_hosts& operator=(const two_hosts&) = delete;
  ~two_hosts() { remove(); }

  explicit operator bool() const noexcept { return there_; }
  /// Arguments before those of a program, to run it on the one host or the other.
  arguments on_a() const { return {"/bin/sh", "-c", "exec ip netns exec " + a() + " \"$0\" \"$@\""}; }
  arguments on_b() const { return {"/bin/sh", "-c", "exec ip netns exec " + b() + " \"$0\" \"$@\""}; }
  void cable(bool up) { shell(in_a("ip link set " + name_ + "a " + (up ? "up" : "down"))); }
  void second_cable(bool up) { shell(in_a("ip link set " + name_ + "c " + (up ? "up" : "down"))); }
  /// Bytes that host a has sent by each cable.
  std::array<std::uint64_t, 2> sent() const {
    launch how;
    how.arguments = {"/bin/sh", "-c", in_a("cat /sys/class/net/" + name_ + "[ac]/statistics/tx_bytes")};
    std::array<std::uint64_t, 2> out{};
    std::istringstream(run(how).out) >> out[0] >> out[1];
    return out;
  }
  std::string interface() const { return name_ + "a"; }

private:
  void remove() const { shell("ip netns del " + a() + "; ip netns del " + b()); }
  std::string a() const { return name_ + "-a"; }
  std::string b() const { return name_ + "-b"; }
  std::string in_a(const std::string& what) const { return "ip netns exec " + a() + " sh -c '" + what + "'"; }
  std::string in_b(const std::string& what) const { return "ip netns exec " + b() + " sh -c '" + what + "'"; }
  static bool shell(const std::string& what) {
    launch how;
    how.arguments = {"/bin/sh", "-c", what};
    return run(how).code == 0;
  }

  std::string name_;
  bool there_ = false;
};

launch on(const arguments& where, launch what) {
  what.arguments = where + what.arguments;
  return what;
}

} // namespace

TEST_CASE("hosts: on an interrupted network every task ends and no byte is wrong") {
  const std::string transport = GENERATE("tcp", "ucx");
  if (!is_there(transport))
    return;
  two_hosts hosts;
  if (!hosts) {
    WARN("skipped: this user may not make network namespaces");
    return;
  }
  const scratch_directory scratch;
  const node_shape shape{.ranks = 2, .page_bytes = 65536};
  auto config = config_for_hosts(scratch.path(), shape, transport);
  config["actors"]["host"] = "10.231.7.1";
  config["actors"]["port"] = 7777;
  if (transport == "ucx")
    config["remote"]["ucx_interfaces"] = hosts.interface();
  process node(on(hosts.on_a(),
                  program_with(arguments{"serve", "--config", write_config(scratch.path(), config)} + quick_timeouts)));
  node.wait_for_line(stream::out, "ready");
  const arguments attach =
      arguments{"--attach", "10.231.7.1:7777", "--set", "attach.always_remote=true",    "--attach-limit", "60",
                "--set",    "log_level=debug", "--set", "remote.transport=" + transport} +
      quick_timeouts;
  const auto whole = [&] {
    process client(on(hosts.on_b(), replay_command(attach + arguments{"--trace", small_trace})));
    return result_of(client);
  };
  check_clean(whole(), shape);

  std::size_t from = node.wait_for_line(stream::err, " 0 clients", log_mark(node)).index;
  process client(on(hosts.on_b(), replay_command(attach + arguments{"--trace", endless_trace, "--salt", "4"})));
  const auto wait_until_there = [&] {
    try {
      from = node.wait_for_line(stream::err, " 1 clients", from).index + 1;
    } catch (const std::runtime_error& e) {
      client.send(SIGTERM);
      FAIL(e.what() << "\nthe client says:\n" << result_of(client).err);
    }
  };
  for (int round = 0; round < 2; ++round) {
    wait_until_there();
    hosts.cable(false);
    from = node.wait_for_line(stream::err, "its leases and reservations are released", from).index + 1;
    hosts.cable(true);
  }
  wait_until_there();
  client.send(SIGTERM);
  const auto x = result_of(client);
  INFO(x.err);
  if (x.report.is_object()) // it was bound again already
    CHECK(x.count("verify_failures") == 0);
  const auto said = node.so_far(stream::err);
  INFO(said.substr(said.size() > 4000 ? said.size() - 4000 : 0));
  CHECK_FALSE(node.ended());
  const auto again = whole();
  check_clean(again, shape);
  node.send(SIGTERM);
  CHECK(node.wait() == 0);
}

TEST_CASE("hosts: pages use all network interfaces that are named, and those that are left when one goes") {
  two_hosts hosts(true);
  if (!hosts) {
    WARN("skipped: this user may not make network namespaces");
    return;
  }
  const scratch_directory scratch;
  const node_shape shape{.page_bytes = 65536};
  auto config = config_for_hosts(scratch.path(), shape);
  config["actors"]["host"] = "10.231.7.1";
  config["actors"]["port"] = 7777;
  config["remote"]["addresses"] = "10.231.7.1, 10.231.8.1, 10.231.9.1";
  process node(on(hosts.on_a(), program_with({"serve", "--config", write_config(scratch.path(), config)})));
  node.wait_for_line(stream::err, "10.231.9.1 is not an address of this host");
  node.wait_for_line(stream::out, "ready");
  const auto replay = [&](const std::string& salt) {
    const arguments how{"--attach", "10.231.7.1:7777",
                        "--trace",  small_trace,
                        "--salt",   salt,
                        "--set",    "attach.always_remote=true",
                        "--set",    "remote.addresses=10.231.7.2,10.231.8.2,10.231.9.2"};
    process client(on(hosts.on_b(), replay_command(how)));
    return result_of(client);
  };
  const auto before = hosts.sent();
  const auto all = replay("1");
  check_clean(all, shape);
  const auto after = hosts.sent();
  const auto loaded = all.count("loaded_bytes");
  CHECK(loaded > 0);
  // Each carries a part of the pages that are loaded; their shares depend on which is free first.
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(after[i] - before[i] > loaded / 8);
  hosts.second_cable(false);
  check_clean(replay("2"), shape);
  node.send(SIGTERM);
  CHECK(node.wait() == 0);
}

} // namespace hosts_test
