#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <arpa/inet.h>
#include <csignal>
#include <netinet/in.h>
#include <regex>
#include <sys/socket.h>
#include <unistd.h>

namespace serve_test {

using namespace troupe::test;
using nlohmann::json;
using stream = process::stream;

namespace {

constexpr const char* small_trace = "loogle:2,1024,3,128";

} // namespace

TEST_CASE("serve: a node prints one line when it is ready, and drains on SIGTERM and on SIGINT") {
  const auto signal_number = GENERATE(SIGTERM, SIGINT);
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  // Over TCP no client maps its memory.
  config["remote"] = {{"enabled", true}};
  serving_node node(write_config(scratch.path(), config));
  CHECK(node.port() != 0);
  const auto socket = (scratch.path() / "data" / "troupe.sock").string();
  CHECK(node.ready_line() == R"({"event":"ready","node":"tested","actors":{"socket":")" + socket +
                                 R"(","host":"127.0.0.1","port":)" + std::to_string(node.port()) + "}}");
  check_clean(run_replay({"--attach", socket, "--trace", small_trace}), {});
  check_clean(run_replay({"--attach", node.endpoint(), "--trace", small_trace}), {});

  node.program().send(signal_number);
  CHECK(node.program().wait() == 0);
  INFO(node.log());
  CHECK(node.program().text(stream::out) == node.ready_line() + "\n");
  CHECK(node.log().find("stopped") != std::string::npos);
}

TEST_CASE("serve: a node uses the port of its config") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path()));
  std::uint16_t port = 0;
  {
    serving_node first(config);
    port = first.port();
    CHECK(first.stop() == 0);
  }
  serving_node second(config, {"--set", "actors.port=" + std::to_string(port), "--set", "node_name=other"});
  CHECK(second.port() == port);
  CHECK(json::parse(second.ready_line()).at("node") == "other");
  CHECK(second.stop() == 0);
}

TEST_CASE("serve: log lines have time, level and component, and obey log_level") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path()));
  {
    serving_node node(config);
    node.statistics();
    CHECK(node.stop() == 0);
    const std::regex form(
        R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (trace|debug|info|warning|error|critical) [a-z_]+: .+)");
    std::istringstream log(node.log());
    for (std::string line; std::getline(log, line);) {
      INFO(line);
      CHECK(std::regex_match(line, form));
    }
  }
  serving_node quiet(config, {"--set", "log_level=error"});
  CHECK(quiet.stop() == 0);
  CHECK(quiet.log().empty());
}

TEST_CASE("serve: a restarted node without an index starts empty and reports it") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path()));
  const auto hits = expected(small_trace).hit_blocks;
  for (int round = 0; round < 3; ++round) {
    INFO("round " << round);
    serving_node node(config);
    if (round > 0)
      node.wait_for_log("the registry starts empty");
    CHECK(node.statistics().keys == 0);
    const auto first = run_replay({"--attach", node.address(), "--trace", small_trace, "--concurrency", "1"});
    check_clean(first, {});
    CHECK(first.count("hit_blocks") == hits);
    const auto second = run_replay({"--attach", node.address(), "--trace", small_trace, "--concurrency", "1"});
    check_clean(second, {});
    CHECK(second.count("hit_blocks") == second.count("blocks"));
    if (round == 1)
      node.program().kill(); // the next one starts empty after a crash, too
    else
      CHECK(node.stop() == 0);
    if (round == 0)
      CHECK(node.log().find("the registry starts empty") == std::string::npos);
  }
}

TEST_CASE("serve: a node drains while a client is active") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path(), {.slots = 4096});
  serving_node node(write_config(scratch.path(), config));
  process client(replay_command({"--attach", node.address(), "--trace", endless_trace, "--attach-limit", "1"}));
  node.wait_for_statistics([](const auto& x) { return x.keys > 500; });
  CHECK(node.stop() == 0);
  const auto outcome = result_of(client);
  INFO(outcome.err);
  CHECK(outcome.code == 1);
  CHECK(outcome.err.find("aborted after") != std::string::npos);
  CHECK(outcome.count("verify_failures") == 0);
}

TEST_CASE("serve: a port that is taken is an error that names it") {
  const scratch_directory scratch;
  const int other = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(::bind(other, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(other, 1) == 0);
  REQUIRE(::getsockname(other, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  const auto port = std::to_string(ntohs(address.sin_port));

  const auto config = write_config(scratch.path(), node_config(scratch.path())).string();
  const auto x = run(program_with({"serve", "--config", config, "--set", "actors.port=" + port}));
  ::close(other);
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.out.empty());
  CHECK(x.err.find("127.0.0.1:" + port) != std::string::npos);
  CHECK(x.err.find("actors.port") != std::string::npos);

  // It has released all resources.
  serving_node node(config);
  CHECK(node.stop() == 0);
}

TEST_CASE("serve: without io_uring a node falls back to threads or refuses if io_uring is required") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path()));
  launch container;
  container.without_io_uring = true;
  {
    serving_node node(config, {}, container);
    CHECK(node.wait_for_log(" warning io: ").text.find("threads") != std::string::npos);
    check_clean(run_replay({"--attach", node.address(), "--trace", small_trace}), {});
    CHECK(node.stop() == 0);
  }
  auto insisting = program_with({"serve", "--config", config.string(), "--set", "io.engine=io_uring"});
  insisting.without_io_uring = true;
  const auto x = run(insisting);
  INFO(x.err);
  CHECK(x.code == 1);
  CHECK(x.out.empty());
  CHECK(x.err.find("io.engine") != std::string::npos);
}

} // namespace serve_test
