#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <unistd.h>

namespace start_order_test {

/// Obstacles to serving are found before anything is created.

using namespace troupe::test;
using stream = process::stream;
namespace fs = std::filesystem;

TEST_CASE("start order: ports, tokens and certificates are checked before any write") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  config["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  const auto file = write_config(scratch.path(), config).string();
  const scratch_directory other;
  auto other_config = node_config(other.path());
  other_config["http"] = config["http"];
  serving_node running(write_config(other.path(), other_config));
  const auto ready = nlohmann::json::parse(running.ready_line());
  const auto port_of = [&](const char* listener) { return std::to_string(ready.at(listener).at("port").get<int>()); };

  std::ofstream(scratch / "no.pem") << "no certificate\n";
  const auto pem = (scratch / "no.pem").string();
  struct obstacle {
    arguments settings;
    const char* said;
    /// 2 where it stays so until the config is changed.
    int code = 1;
  };
  const std::vector<obstacle> obstacles{
      {{"http.port=" + port_of("http")}, "another process uses that port; stop it, or set http.port"},
      {{"actors.port=" + port_of("actors")}, "another process uses that port; stop it, or set actors.port"},
      {{"http.host=203.0.113.1", "http.insecure=true"}, "no interface of this machine has that address; set http.host"},
      {{"actors.host=203.0.113.1", "actors.insecure=true"},
       "no interface of this machine has that address; set actors.host"},
      {{"http.tokens_file=" + (scratch / "none").string()}, "tokens file", 2},
      {{"http.tls.certificate=" + pem, "http.tls.key=" + pem}, "http.tls.certificate", 2},
      {{"actors.tls.certificate=" + pem, "actors.tls.key=" + pem, "actors.tls.ca=" + pem}, "actors.tls", 2},
  };
  for (const auto& x : obstacles) {
    auto command = program_with({"serve", "--config", file});
    for (const auto& setting : x.settings)
      command.arguments.insert(command.arguments.end(), {"--set", setting});
    const auto refused = run(command);
    INFO(x.said << ": " << refused.err);
    CHECK(refused.code == x.code);
    CHECK(refused.err.find(x.said) != std::string::npos);
    // The same error as check-config prints.
    command.arguments[1] = "check-config";
    command.arguments.erase(command.arguments.begin() + 2); // --config
    CHECK(run(command).code == (x.code == 2 ? 2 : 0));
    CHECK_FALSE(fs::exists(scratch / "data"));
  }
  CHECK(running.stop() == 0);
}

TEST_CASE("start order: a node stopped during startup ends at once and starts normally afterwards") {
  const auto signal_number = GENERATE(SIGINT, SIGTERM);
  const scratch_directory scratch;
  const auto config = node_config(scratch.path());
  const auto file = write_config(scratch.path(), config);
  {
    serving_node first(file);
    CHECK(first.stop() == 0);
  }
  // A slab that another process has locked is waited for.
  const int slab = ::open(slab_path(config).c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(slab >= 0);
  REQUIRE(::flock(slab, LOCK_EX | LOCK_NB) == 0);
  process starting(program_with({"serve", "--config", file.string()}));
  starting.wait_for_line(stream::err, "slab in use: ");
  starting.send(signal_number);
  CHECK(starting.wait() == 0);
  CHECK(starting.text(stream::out).empty());
  CHECK(starting.text(stream::err).find("stopped by a signal while starting") != std::string::npos);
  ::close(slab);
  serving_node again(file);
  CHECK(again.stop() == 0);
}

} // namespace start_order_test
