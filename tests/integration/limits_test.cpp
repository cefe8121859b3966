#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>

namespace limits_test {

/// Processes that may make few threads, or open few files: under each limit from the smallest one on they say what they
/// lack and end with a code, until one is enough. None hangs, and none ends by a signal.

using namespace troupe::test;
using nlohmann::json;

namespace {

using stream = process::stream;

constexpr const char* small_trace = "loogle:2,1024,3,128";

/// Threads and open files that are enough for anything here, on any machine.
constexpr std::uint64_t enough = 400;

/// A node with all that has threads of its own.
json whole_config(const scratch_directory& scratch) {
  auto out = node_config(scratch.path(), {.strict = true});
  out["http"] = {{"enabled", true}, {"port", 0}, {"threads", 2}};
  out["lmcache"] = {{"enabled", true}, {"port", 0}};
  out["remote"] = {{"enabled", true}};
  out["handshake"]["http"] = {{"enabled", true}, {"port", 0}};
  out["events"] = {{"endpoint", "tcp://127.0.0.1:0"},
                   {"replay_endpoint", "ipc://" + (scratch.path() / "replay.sock").string()}};
  // A port without a listener.
  const json closed_port = {{"host", "127.0.0.1"}, {"port", 1}};
  out["cluster"] = {{"name", "limits"},
                    {"advertise", closed_port},
                    {"seeds", {closed_port}},
                    {"etcd", {{"endpoints", {closed_port}}}}};
  out["caf"]["scheduler_threads"] = 2;
  return out;
}

/// The exhausted resource, and the setting to change.
void check_sentence(const std::string& err, bool threads) {
  const std::string way = threads ? "ulimit -u" : "ulimit -n";
  INFO(err);
  CHECK(err.find(way) != std::string::npos);
  CHECK(err.find("unhandled exception") == std::string::npos);
}

/// The loader of programs has said it, before there was a program.
bool is_of_loader(const outcome& x) {
  return x.code == 127 && x.err.find("error while loading shared libraries") != std::string::npos;
}

/// Runs it under one limit after the other until it ends with 0, and CHECKs how the others end.
void try_all(const std::function<launch(std::uint64_t)>& make, bool threads) {
  for (std::uint64_t limit = 0; limit < enough; ++limit) {
    INFO((threads ? "threads: " : "files: ") << limit);
    const auto x = run(make(limit));
    if (x.code == 0)
      return;
    if (!threads && is_of_loader(x))
      continue;
    CHECK(x.code == 1);
    check_sentence(x.err, threads);
  }
  FAIL("no limit was enough");
}

#ifdef TROUPE_FEW_THREADS
launch with_threads(arguments what, std::uint64_t limit) {
  launch out;
  out.arguments = {"/usr/bin/env", "LD_PRELOAD=" TROUPE_FEW_THREADS, "TROUPE_THREADS_MAX=" + std::to_string(limit)};
  out.arguments.insert(out.arguments.end(), what.begin(), what.end());
  return out;
}
#endif

launch with_files(arguments what, std::uint64_t limit) {
  launch out;
  out.arguments = std::move(what);
  out.descriptor_limit = limit;
  return out;
}

/// The same for a node: one limit after the other until it is ready.
void try_node(const std::function<launch(std::uint64_t)>& make, bool threads) {
  for (std::uint64_t limit = 0; limit < enough; ++limit) {
    INFO((threads ? "threads: " : "files: ") << limit);
    process node(make(limit));
    bool is_ready = true;
    try {
      node.wait_for_line(stream::out, R"("event":"ready")");
    } catch (const std::exception&) { // it has ended, or hangs, which `wait` throws
      is_ready = false;
    }
    if (is_ready) {
      node.send(SIGTERM);
      CHECK(node.wait() == 0);
      return;
    }
    const outcome x{node.wait(), node.text(stream::out), node.text(stream::err)};
    if (!threads && is_of_loader(x))
      continue;
    CHECK(x.code == (x.err.find("cannot read") != std::string::npos ? 2 : 1));
    CHECK(x.out.empty());
    check_sentence(x.err, threads);
  }
  FAIL("no limit was enough");
}

} // namespace

#ifdef TROUPE_FEW_THREADS
TEST_CASE("limits: a node starts or reports the thread limit") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), whole_config(scratch)).string();
  try_node([&](auto limit) { return with_threads({TROUPE_PROGRAM, "serve", "--config", config}, limit); }, true);
}

TEST_CASE("limits: a replay with its own node works or reports the thread limit") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path())).string();
  try_all(
      [&](auto limit) {
        return with_threads({TROUPE_PROGRAM, "replay", "--quiet", "--trace", small_trace, "--config", config}, limit);
      },
      true);
}

TEST_CASE("limits: a replay on a running node works or reports the thread limit") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  for (const auto* way : {"--quiet", "--engine"})
    try_all(
        [&](auto limit) {
          return with_threads({TROUPE_PROGRAM, "replay", way, "--trace", small_trace, "--attach", node.address()},
                              limit);
        },
        true);
  CHECK(node.stop() == 0);
}

TEST_CASE("limits: an engine at its thread limit gets an error from the library and continues", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  for (const auto* program : {TROUPE_EXAMPLE_C_PAGES, TROUPE_EXAMPLE_CPP_POOL, TROUPE_EXAMPLE_C_ENGINE}) {
    INFO(program);
    try_all([&](auto limit) { return with_threads({program, node.address()}, limit); }, true);
  }
  CHECK(node.stop() == 0);
}
#endif

TEST_CASE("limits: a node starts or reports the file limit") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), whole_config(scratch)).string();
  try_node([&](auto limit) { return with_files({TROUPE_PROGRAM, "serve", "--config", config}, limit); }, false);
}

TEST_CASE("limits: a replay works or reports the file limit") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path())).string();
  try_all(
      [&](auto limit) {
        return with_files({TROUPE_PROGRAM, "replay", "--quiet", "--trace", small_trace, "--config", config}, limit);
      },
      false);
}

TEST_CASE("limits: an engine at its file limit gets an error from the library", "[capi]") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())));
  try_all([&](auto limit) { return with_files({TROUPE_EXAMPLE_C_PAGES, node.address()}, limit); }, false);
  CHECK(node.stop() == 0);
}

TEST_CASE("limits: a container that allows io_uring setup but not its use gets a thread pool") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path(), {.strict = true});
  launch container;
  container.forbidden_call = SYS_io_uring_enter;
  serving_node node(write_config(scratch.path(), config), {}, container);
  node.wait_for_log("a pool of");
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {.strict = true});
  CHECK(node.stop() == 0);
}

TEST_CASE("limits: a node that may not watch processes reports it at once to the client and in its log") {
  const scratch_directory scratch;
  launch container;
  container.without_pidfd_of_peers = true;
  container.forbidden_call = SYS_pidfd_open;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())), {}, container);
  const auto x = run_replay({"--attach", node.address(), "--trace", small_trace, "--attach-limit", "3600"});
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.err.find("pidfd_open") != std::string::npos);
  CHECK(x.err.find("seccomp") != std::string::npos);
  CHECK(node.wait_for_log("client not attached").text.find("pidfd_open") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("limits: the reason why a node refuses a client is sent to it at once and logged") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  config.erase("namespaces");
  config["storage"] = {{"ranks", json::array()}, {"disk_bytes", "64 MiB"}};
  config["actors"]["make_namespaces"] = true;
  serving_node node(write_config(scratch.path(), config));
  // A file where the node would make a directory.
  std::filesystem::remove_all(scratch / "data/namespaces");
  std::ofstream(scratch / "data/namespaces").put('x');
  const auto ns = scratch / "space.json";
  std::ofstream(ns) << node_config(scratch.path())["namespaces"][0].dump();
  process client(replay_command(
      {"--attach", node.address(), "--trace", small_trace, "--make-namespace", ns.string(), "--attach-limit", "3600"}));
  client.wait_for_line(stream::err, "attach refused by the node: ");
  CHECK(node.wait_for_log("client not attached").text.find("namespaces") != std::string::npos);
  client.kill();
  CHECK(node.stop() == 0);
}

TEST_CASE("limits: SIGHUP before a node is ready does not end it") {
  const scratch_directory scratch;
  const auto text = node_config(scratch.path()).dump();
  const auto config = scratch / "config";
  REQUIRE(::mkfifo(config.c_str(), 0600) == 0);
  process node(program_with({"serve", "--config", config.string()}));
  {
    // Opens when the program reads.
    std::ofstream writer(config);
    node.send(SIGHUP);
    writer << text;
  }
  node.wait_for_line(stream::out, R"("event":"ready")");
  node.send(SIGTERM);
  CHECK(node.wait() == 0);
}

} // namespace limits_test
