#include "tests/catch.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/support.hpp"
#include "tests/patience.hpp"

#include <csignal>
#include <sys/socket.h>
#include <unistd.h>

namespace client_processes_test {

using namespace troupe::test;
using stream = process::stream;

/// Whose process a client is, and how it gets at the node's memory: in containers, with other capabilities, and where
/// it lies.

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";

/// Runs a program in a process namespace of its own, in which it is process 1.
const arguments process_namespace{"/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child"};

/// Runs a program without any capability, as the same user.
const arguments no_capabilities{"/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all"};

launch under(const arguments& how, launch what) {
  what.arguments.insert(what.arguments.begin(), how.begin(), how.end());
  return what;
}

bool works(const arguments& how) {
  launch trial;
  trial.arguments = how;
  trial.arguments.emplace_back("/bin/true");
  return std::filesystem::exists(how.front()) && run(trial).code == 0;
}

/// Whether the kernel reports the process at the other end in any PID namespace (Linux 6.5).
bool kernel_names_processes() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return false;
  constexpr int peer_pidfd = 77;
  int descriptor = -1;
  socklen_t size = sizeof descriptor;
  const bool out = ::getsockopt(ends[0], SOL_SOCKET, peer_pidfd, &descriptor, &size) == 0;
  for (const int x : {ends[0], ends[1], descriptor})
    ::close(x);
  return out;
}

bool can_have_process_namespaces() {
  if (!works(process_namespace)) {
    WARN("skipped: this user may not make a process namespace");
    return false;
  }
  if (!kernel_names_processes()) {
    WARN("skipped: clients in other process namespaces share memory from Linux 6.5 on");
    return false;
  }
  return true;
}

nlohmann::json config_with_http(const std::filesystem::path& directory) {
  auto out = node_config(directory);
  out["http"] = {{"enabled", true}, {"port", 0}};
  return out;
}

bool has_no_disconnected(serving_node& node) {
  return sum_of_metric(node, "troupe_disconnected_clients") == 0 && sum_of_metric(node, "troupe_clients") == 0;
}

} // namespace

TEST_CASE("client processes: a client needs none of the capabilities of its node") {
  if (::geteuid() != 0 || !works(no_capabilities)) {
    WARN("skipped: only root has capabilities to drop, by setpriv");
    return;
  }
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), config_with_http(scratch.path())));
  auto without = under(no_capabilities, replay_command({"--attach", node.address(), "--trace", small_trace}));
  process client(without);
  const auto x = result_of(client);
  INFO(x.err);
  check_clean(x, {});
  CHECK(troupe::test::eventually([&] { return has_no_disconnected(node); }));
  // The same in the other direction.
  CHECK(node.stop() == 0);
  const scratch_directory other;
  launch how;
  how.arguments = no_capabilities;
  serving_node poor(write_config(other.path(), node_config(other.path())), {}, how);
  check_clean(run_replay({"--attach", poor.address(), "--trace", small_trace}), {});
  CHECK(poor.stop() == 0);
}

TEST_CASE("client processes: a client in another PID namespace maps the node's memory and its exit is detected") {
  if (!can_have_process_namespaces())
    return;
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), config_with_http(scratch.path())));
  process client(under(process_namespace, replay_command({"--attach", node.address(), "--trace", small_trace})));
  const auto x = result_of(client);
  INFO(x.err);
  check_clean(x, {});
  {
    process killed(under(process_namespace, replay_command({"--attach", node.address(), "--trace", endless_trace})));
    node.wait_for_statistics([](const auto& s) { return s.clients == 1 && s.keys > 300; });
    killed.kill();
  }
  CHECK(troupe::test::eventually([&] { return has_no_disconnected(node); }));
  CHECK(node.wait_until_quiesced().quiesced());
  // A node in a PID namespace serves clients outside.
  CHECK(node.stop() == 0);
  const scratch_directory other;
  launch how;
  how.arguments = process_namespace;
  serving_node inside(write_config(other.path(), node_config(other.path())), {}, how);
  check_clean(run_replay({"--attach", inside.address(), "--trace", small_trace}), {});
  inside.program().kill();
}

TEST_CASE("client processes: clients with the same PID in two PID namespaces attach at the same time") {
  if (!can_have_process_namespaces())
    return;
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  const auto replay = [&](const char* trace, const char* salt) {
    return under(process_namespace, replay_command({"--attach", node.address(), "--trace", trace, "--salt", salt,
                                                    "--attach-limit", "10"}));
  };
  process first(replay(endless_trace, "1"));
  node.wait_for_statistics([](const auto& s) { return s.clients == 1 && s.keys > 100; });
  process second(replay(small_trace, "2"));
  const auto x = result_of(second);
  INFO(x.err);
  check_report(x, {});
  CHECK(x.code == 0);
  CHECK(node.statistics().clients >= 1);
  CHECK_FALSE(first.ended());
  first.kill();
  CHECK(node.wait_until_quiesced().quiesced());
  CHECK(node.stop() == 0);
}

TEST_CASE("client processes: on kernels without pidfds of peers the node watches a client by its PID") {
  const scratch_directory scratch;
  launch old;
  old.without_pidfd_of_peers = true;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())), {}, old);
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {});
  process killed(replay_command({"--attach", node.address(), "--trace", endless_trace}));
  node.wait_for_statistics([](const auto& s) { return s.clients == 1 && s.keys > 100; });
  killed.kill();
  CHECK(node.wait_until_quiesced().quiesced());
  CHECK(node.stop() == 0);
}

TEST_CASE("client processes: clients that claim to be process 1 free their slot, on the Unix socket and over TCP") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), config_with_http(scratch.path())), {"--set", "io.max_clients=2"});
  for (const auto& where : {node.socket(), node.endpoint()})
    for (const auto& said : {std::string("1"), std::to_string(node.program().id()), std::string("1")}) {
      INFO(where << " as process " << said);
      launch liar;
      liar.arguments = {TROUPE_HOSTILE_PEER, where, said};
      const auto x = run(liar);
      INFO(x.err);
      CHECK(x.code == 0);
      CHECK(x.out.find("attached as another") != std::string::npos);
      CHECK(troupe::test::eventually([&] { return has_no_disconnected(node); }));
    }
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {});
  CHECK(node.stop() == 0);
}

TEST_CASE("client processes: slots of disconnected clients whose processes run are reported and freed on exit") {
  const scratch_directory scratch;
  serving_node node(
      write_config(scratch.path(), config_with_http(scratch.path())),
      {"--set", "io.max_clients=1", "--set", "caf.heartbeat_interval=200 ms", "--set", "caf.connection_timeout=1 s"});
  const auto is_full = [&] { return sum_of_metric(node, "troupe_degraded{reason=\"clients_full\"}") == 1; };
  CHECK_FALSE(is_full());
  {
    process frozen(replay_command({"--attach", node.address(), "--trace", endless_trace}));
    node.wait_for_statistics([](const auto& s) { return s.clients == 1 && s.keys > 100; });
    frozen.send(SIGSTOP);
    CHECK(troupe::test::eventually(is_full));
    const auto line = node.wait_for_log("no new client can attach").text;
    CHECK(line.find(std::to_string(frozen.id())) != std::string::npos);
    CHECK(line.find("io.max_clients") != std::string::npos);
    const auto refused = run_replay({"--attach", node.address(), "--trace", small_trace, "--attach-limit", "8"});
    CHECK(refused.code == 1);
    CHECK(refused.err.find("io.max_clients") != std::string::npos);
    frozen.kill();
  }
  CHECK(troupe::test::eventually([&] { return !is_full(); }));
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {});
  CHECK(node.stop() == 0);
}

} // namespace client_processes_test
