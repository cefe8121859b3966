#include "tests/catch.hpp"
#include "tests/integration/certificates.hpp"
#include "tests/integration/support.hpp"

#include <csignal>
#include <sys/stat.h>

namespace attach_test {

using namespace troupe::test;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:4,2048,5,128";

arguments operator+(arguments a, const arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

} // namespace

TEST_CASE("attach: an attached replay has the hits of an in-process replay and only hits the second time") {
  const auto ranks = GENERATE(1U, 2U);
  const auto* concurrency = GENERATE("1", "8");
  INFO(ranks << " ranks, concurrency " << concurrency);
  const node_shape shape{.ranks = ranks};
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)));
  const arguments how{"--attach", node.address(), "--trace", small_trace, "--concurrency", concurrency};
  const auto model = expected(small_trace);

  const auto first = run_replay(how);
  check_clean(first, shape);
  CHECK(first.count("blocks") == model.blocks);
  CHECK(first.count("saved_pages") == model.unique_blocks * ranks);
  if (concurrency == std::string_view("1"))
    CHECK(first.count("hit_blocks") == model.hit_blocks);

  const auto second = run_replay(how);
  check_clean(second, shape);
  CHECK(second.count("hit_blocks") == model.blocks);
  CHECK(second.count("saved_pages") == 0);

  auto salted = how;
  salted.insert(salted.end(), {"--salt", "1"});
  const auto third = run_replay(salted);
  check_clean(third, shape);
  CHECK(third.count("saved_pages") == model.unique_blocks * ranks);

  // All clients have detached: their pages are live, and no other slot is in use.
  const auto rest = node.wait_until_quiesced();
  CHECK(rest.clients == 0);
  CHECK(rest.quiesced());
  CHECK(rest.complete == 2 * model.unique_blocks);
  for (const auto& x : rest.ranks) {
    CHECK(x.live == 2 * model.unique_blocks);
    CHECK(x.free + x.live == x.total);
    CHECK(x.failed == 0);
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("attach: two concurrent clients of a node share their pages") {
  const node_shape shape{.ranks = 2, .slots = 2048};
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)));
  const auto model = expected(small_trace);
  SECTION("the same keys") {
    const auto command = replay_command({"--attach", node.address(), "--trace", small_trace, "--concurrency", "4"});
    process one(command);
    process two(command);
    const auto a = result_of(one);
    const auto b = result_of(two);
    check_clean(a, shape);
    check_clean(b, shape);
    // Each page was written by one of them: the other found it, or found it being written.
    CHECK(a.count("saved_pages") + b.count("saved_pages") == model.unique_blocks * shape.ranks);
    CHECK(node.statistics().complete == model.unique_blocks);
  }
  SECTION("different keys") {
    const auto command = [&](const char* salt) {
      return replay_command({"--attach", node.address(), "--trace", small_trace, "--concurrency", "1", "--salt", salt});
    };
    process one(command("1"));
    process two(command("2"));
    for (auto* x : {&one, &two}) {
      const auto outcome = result_of(*x);
      check_clean(outcome, shape);
      CHECK(outcome.count("hit_blocks") == model.hit_blocks);
    }
  }
  CHECK(node.wait_until_quiesced().quiesced());
  CHECK(node.stop() == 0);
}

TEST_CASE("attach: two concurrent clients of a node with few slots evict each other's pages and read no wrong byte") {
  // Pages of 64 KiB, so that memory does not hold all of them beyond the slabs.
  const node_shape shape{.ranks = 2, .page_bytes = 65536, .slots = 256, .memory_bytes = 4 * little_memory};
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path(), shape)));
  const auto command = [&](const char* salt) {
    return replay_command(
        {"--attach", node.address(), "--trace", "loogle:30,1024,6,128", "--concurrency", "4", "--salt", salt});
  };
  process one(command("1"));
  process two(command("2"));
  for (auto* x : {&one, &two}) {
    const auto outcome = result_of(*x);
    check_report(outcome, shape);
    CHECK(outcome.code == 0);
    CHECK(outcome.count("requests") == 180);
    CHECK(outcome.count("load_failures") == 0);
  }
  const auto rest = node.wait_until_quiesced();
  CHECK(rest.quiesced());
  CHECK(rest.evicted > 0);
  for (const auto& x : rest.ranks)
    CHECK(x.free + x.live == x.total);
  CHECK(node.stop() == 0);
}

TEST_CASE("attach: a client selects a namespace by name and an unknown name is an error that lists the known ones") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  auto other = config["namespaces"][0];
  other["name"] = "other";
  other["model"] = "test/other";
  config["namespaces"].push_back(other);
  serving_node node(write_config(scratch.path(), config));
  const auto* trace = "loogle:1,1024,2,128";
  const auto into = [&](const char* name) {
    return run_replay({"--attach", node.address(), "--trace", trace, "--concurrency", "1", "--namespace", name});
  };
  // The same keys in another namespace are other pages.
  for (const auto* name : {"space", "other"}) {
    const auto x = into(name);
    check_clean(x, {});
    CHECK(x.count("saved_pages") == expected(trace).unique_blocks);
  }
  const auto wrong = into("no-such");
  INFO(wrong.err);
  CHECK(wrong.code == 1);
  CHECK(wrong.report.is_null());
  CHECK(wrong.err.find("space, other") != std::string::npos);
  CHECK(node.stop() == 0);
}

TEST_CASE("attach: clients beyond the limit are refused until one detaches") {
  const scratch_directory scratch;
  serving_node node(write_config(scratch.path(), node_config(scratch.path())), {"--set", "io.max_clients=1"});
  const arguments how{"--attach", node.address(), "--trace", "loogle:1,1024,2,128"};
  {
    auto long_one = how;
    long_one[3] = endless_trace;
    process first(replay_command(long_one));
    node.wait_for_statistics([](const auto& x) { return x.clients == 1 && x.keys > 0; });
    auto impatient = how;
    impatient.insert(impatient.end(), {"--attach-limit", "5"});
    const auto second = run_replay(impatient);
    INFO(second.err);
    CHECK(second.code == 1);
    CHECK(second.err.find("io.max_clients") != std::string::npos);
    first.send(SIGINT);
    const auto interrupted = result_of(first);
    CHECK(interrupted.code == 128 + SIGINT);
    CHECK(interrupted.err.find("interrupted") != std::string::npos);
    CHECK(interrupted.count("verify_failures") == 0);
  }
  check_clean(run_replay(how), {});
  CHECK(node.stop() == 0);
}

TEST_CASE("attach: over TCP with certificates only clients of the same authority attach") {
  if (!std::filesystem::exists("/usr/bin/openssl")) {
    WARN("skipped: no program to make certificates with");
    return;
  }
  const scratch_directory scratch;
  const certificates files(scratch.path());
  auto config = node_config(scratch.path());
  config["actors"].erase("insecure");
  config["actors"]["handshake_time"] = "500 ms";
  serving_node node(write_config(scratch.path(), config), files.settings("node"));
  const arguments how{"--attach", node.endpoint(), "--trace", small_trace};
  // No client maps memory over TCP; without settings for remote clients, the error names the missing setting.
  const auto elsewhere = run_replay(how + files.settings("engine"));
  CHECK(elsewhere.code == 1);
  CHECK(elsewhere.err.find("Unix socket") != std::string::npos);
  CHECK(elsewhere.err.find("remote.enabled") != std::string::npos);
  // The Unix socket works as before.
  check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {});
  const auto before = node.statistics();
  for (const auto& strange : {arguments{}, files.settings("foreign")}) {
    const auto refused = run_replay(how + arguments{"--attach-limit", "8"} + strange);
    INFO(refused.err);
    CHECK(refused.code == 1);
    CHECK(refused.report.is_null());
    CHECK(refused.err.find("cannot reach a node at " + node.endpoint()) != std::string::npos);
  }
  const auto unreadable = run_replay(how + arguments{"--attach-limit", "8"} + files.settings("absent"));
  CHECK(unreadable.code == 1);
  CHECK(unreadable.err.find(files.path("absent.pem")) != std::string::npos);
  CHECK(node.statistics().keys == before.keys);
  CHECK(node.stop() == 0);
}

} // namespace attach_test
