#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <fstream>

/// What keeps a node from serving is found before it makes anything.

using namespace troupe::test;
namespace fs = std::filesystem;

TEST_CASE("ports, tokens and certificates are looked at before anything is written") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path());
  config["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  const auto file = write_config(scratch.path(), config).string();
  const scratch_directory other;
  auto other_config = node_config(other.path());
  other_config["http"] = config["http"];
  serving_node running(write_config(other.path(), other_config));
  const auto ready = nlohmann::json::parse(running.ready_line());
  const auto port_of = [&](const char* door) { return std::to_string(ready.at(door).at("port").get<int>()); };

  std::ofstream(scratch / "no.pem") << "no certificate\n";
  const auto pem = (scratch / "no.pem").string();
  struct obstacle {
    arguments settings;
    const char* said;
  };
  const std::vector<obstacle> obstacles{
      {{"http.port=" + port_of("http")}, "another process uses that port; stop it, or set http.port"},
      {{"actors.port=" + port_of("actors")}, "another process uses that port; stop it, or set actors.port"},
      {{"http.host=203.0.113.1", "http.insecure=true"}, "no interface of this machine has that address; set http.host"},
      {{"actors.host=203.0.113.1", "actors.insecure=true"},
       "no interface of this machine has that address; set actors.host"},
      {{"http.tokens_file=" + (scratch / "none").string()}, "tokens file"},
      {{"http.tls.certificate=" + pem, "http.tls.key=" + pem}, "http.tls.certificate"},
  };
  for (const auto& x : obstacles) {
    auto command = program_with({"serve", "--config", file});
    for (const auto& setting : x.settings)
      command.arguments.insert(command.arguments.end(), {"--set", setting});
    const auto refused = run(command);
    INFO(x.said << ": " << refused.err);
    CHECK(refused.code == 1);
    CHECK(refused.err.find(x.said) != std::string::npos);
    CHECK_FALSE(fs::exists(scratch / "data"));
  }
  CHECK(running.stop() == 0);
}
