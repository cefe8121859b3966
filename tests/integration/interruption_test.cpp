#include "tests/catch.hpp"
#include "tests/integration/listener.hpp"
#include "tests/integration/support.hpp"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sys/stat.h>

namespace interruption_test {

/// Replays that are ended from outside, at any time: their output, their exit codes, and the files that they leave.

using namespace troupe::test;
using stream = process::stream;
namespace fs = std::filesystem;

namespace {

/// A node of its own, in this directory.
launch own_node_replay(const scratch_directory& scratch, const std::string& trace) {
  auto out = program_with({"replay", "--trace", trace, "--page-bytes", "4096", "--capacity-pages", "2048"});
  out.directory = scratch.path();
  return out;
}

/// A trace that never has content: opening it blocks.
std::string endless_wait(const scratch_directory& scratch) {
  auto path = (scratch / "trace.fifo").string();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  return path;
}

std::vector<std::string> scratch_names(const fs::path& directory) {
  auto out = entries(directory);
  std::erase_if(out, [](const std::string& x) { return !x.starts_with("troupe-replay."); });
  return out;
}

void wait_until_played(const process& running) {
  running.wait_for_line(stream::err, " requests");
}

} // namespace

TEST_CASE("interruption: a signal during the setup of a replay ends it at once and leaves nothing behind") {
  const auto signal_number = GENERATE(SIGINT, SIGTERM, SIGHUP);
  const scratch_directory scratch;
  process running(own_node_replay(scratch, endless_wait(scratch)));
  // Its directory is there before it reads the trace.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (scratch_names(scratch.path()).empty() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  REQUIRE(scratch_names(scratch.path()).size() == 1);
  running.send(signal_number);
  CHECK(running.wait() == 128 + signal_number);
  INFO(running.text(stream::err));
  CHECK(running.text(stream::err).find("ended by SIG") != std::string::npos);
  CHECK(scratch_names(scratch.path()).empty());
}

TEST_CASE("interruption: a signal ends a replay that waits for a node at once") {
  const auto signal_number = GENERATE(SIGINT, SIGTERM);
  const listener silent(listener::manner::silent);
  process running(program_with({"replay", "--trace", "loogle:1", "--attach-limit", "600", "--attach",
                                "127.0.0.1:" + std::to_string(silent.port())}));
  running.wait_for_line(stream::err, "waiting for a node");
  running.send(signal_number);
  CHECK(running.wait() == 128 + signal_number);
}

TEST_CASE("interruption: a signal ends a running replay with a report and leaves nothing behind") {
  const auto signal_number = GENERATE(SIGINT, SIGTERM, SIGHUP);
  const scratch_directory scratch;
  const auto engine = GENERATE(false, true);
  // An engine makes all prompts at first.
  auto command = own_node_replay(scratch, engine ? "loogle:400,20480,20,128" : endless_trace);
  command.arguments.emplace_back("--json");
  if (engine)
    command.arguments.emplace_back("--engine");
  process running(command);
  wait_until_played(running);
  running.send(signal_number);
  const auto x = result_of(running);
  INFO(x.err);
  CHECK(x.code == 128 + signal_number);
  CHECK(x.err.find("interrupted") != std::string::npos);
  REQUIRE(x.report.is_object());
  CHECK(scratch_names(scratch.path()).empty());
}

TEST_CASE("interruption: a second signal ends a replay that hangs and leaves nothing behind") {
  const scratch_directory scratch;
  auto command = own_node_replay(scratch, endless_trace);
  process running(command);
  wait_until_played(running);
  running.send(SIGINT);
  running.send(SIGTERM);
  const auto code = running.wait();
  // It depends on timing whether the first one was enough.
  CHECK((code == 128 + SIGINT || code == 128 + SIGTERM));
  CHECK(scratch_names(scratch.path()).empty());
}

TEST_CASE("interruption: files of a killed replay are removed by the next one, which reports it") {
  const scratch_directory scratch;
  {
    process killed(own_node_replay(scratch, endless_trace));
    wait_until_played(killed);
    killed.kill();
  }
  const auto left = scratch_names(scratch.path());
  REQUIRE(left.size() == 1);

  // Directories with another name and those in use are not touched.
  fs::create_directory(scratch / "troupe-replay.mine");
  process working(own_node_replay(scratch, endless_trace));
  wait_until_played(working);
  working.wait_for_line(stream::err, "removed " + (scratch / left[0]).string());
  CHECK_FALSE(fs::exists(scratch / left[0]));
  const auto of_the_living = scratch_names(scratch.path());
  REQUIRE(of_the_living.size() == 2);

  const auto next = run(own_node_replay(scratch, "loogle:1,512,2,64"));
  INFO(next.err);
  CHECK(next.code == 0);
  CHECK(next.err.find("removed") == std::string::npos);
  CHECK(scratch_names(scratch.path()) == of_the_living);
  working.send(SIGINT);
  working.wait();
  CHECK(scratch_names(scratch.path()) == std::vector<std::string>{"troupe-replay.mine"});
}

TEST_CASE("interruption: a replay prints its settings before it starts") {
  const scratch_directory scratch;
  const auto x = run(own_node_replay(scratch, "loogle:1,512,2,64"));
  INFO(x.err);
  CHECK(x.code == 0);
  CHECK(x.err.find("making 16.0 MiB of slab files in " + scratch.path().string()) != std::string::npos);
  CHECK(x.err.find(" of KV cache") != std::string::npos);
}

TEST_CASE("interruption: a replay that waits for a node reports reason and duration in its own words") {
  const auto said = [](const std::string& address, arguments more = {}) {
    auto command = program_with({"replay", "--trace", "loogle:1", "--attach-limit", "6", "--attach", address});
    command.arguments.insert(command.arguments.end(), more.begin(), more.end());
    const auto x = run(command);
    INFO(x.err);
    CHECK(x.code == 1);
    CHECK(x.out.empty());
    for (const auto* word : {"system_error(", "basp", "ip_connect", "sec::", "actor_system"})
      CHECK(x.err.find(word) == std::string::npos);
    CHECK(x.err.find("waiting for a node at " + address) != std::string::npos);
    CHECK(x.err.find(" s left)") != std::string::npos);
    CHECK(x.err.find("cannot reach a node at " + address) != std::string::npos);
    CHECK(x.err.find("troupe serve") != std::string::npos);
    return x.err;
  };
  CHECK(said("127.0.0.1:1").find("connection refused") != std::string::npos);
  CHECK(said("127.0.0.1:1", {"--engine"}).find("connection refused") != std::string::npos);
  using how = listener::manner;
  for (const auto& [manner, why] :
       {std::pair(how::silent, "no answer before the timeout"), std::pair(how::http, "an HTTP server answers there"),
        std::pair(how::garbage, "speaks another protocol")}) {
    const listener other(manner);
    const auto text = said("127.0.0.1:" + std::to_string(other.port()));
    CHECK(text.find("has not admitted this client yet") != std::string::npos);
    CHECK(text.find(why) != std::string::npos);
  }
  CHECK(said("no-such-host.invalid:4600").find("resolved") != std::string::npos);
}

TEST_CASE("interruption: the progress of a replay fits into a terminal of any width") {
  const auto columns = static_cast<unsigned short>(GENERATE(20, 80, 110, 160));
  const scratch_directory scratch;
  auto command = own_node_replay(scratch, "loogle:40,2048,20,128");
  command.terminal_columns = columns;
  process running(command);
  CHECK(running.wait() == 0);
  // Each update ends with the sequence that clears the rest of the line.
  const auto text = running.text(stream::err);
  std::size_t drawn = 0;
  std::size_t longest = 0;
  for (std::size_t end = 0; (end = text.find("\x1b[K", end)) != std::string::npos; ++end) {
    const auto begin = text.rfind('\r', end);
    REQUIRE(begin != std::string::npos);
    longest = std::max(longest, end - begin - 1);
    ++drawn;
  }
  INFO(text);
  CHECK(drawn > 2);
  CHECK(longest < columns);
  CHECK(longest > columns / 2U);
  CHECK(text.find("100 %") != std::string::npos);
}

} // namespace interruption_test
