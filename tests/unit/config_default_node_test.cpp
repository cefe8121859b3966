#include "base/host_memory.hpp"
#include "config/default_node.hpp"
#include "tests/catch.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace config_default_node_test {

using namespace troupe;
using namespace troupe::config;

namespace {

/// The only text for `key` in a config; empty if there is none.
std::string line_of_key(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find("\"" + key + "\": ") != std::string::npos && line.find("//") == std::string::npos)
      return line;
  return {};
}

} // namespace

TEST_CASE("config default node: a node without a config takes a quarter of the memory", "[config]") {
  CHECK(memory_for_pages(16 * gibibyte) == 4 * gibibyte);
  CHECK(memory_for_pages(16 * gibibyte + 200 * mebibyte) == 4 * gibibyte);
  CHECK(memory_for_pages(100 * mebibyte) == 64 * mebibyte);
  CHECK(memory_for_pages(64 * tebibyte) == tebibyte);
  CHECK(memory_for_pages(0) == memory_config{}.bytes);
}

TEST_CASE("config default node: a node without a config is valid, memory only and local to this host", "[config]") {
  for (const auto available : {std::uint64_t{0}, 3 * gibibyte, 2 * tebibyte}) {
    const auto x = default_node(available);
    for (const auto& wrong : validate(x))
      FAIL_CHECK(to_string(wrong));
    CHECK(x.storage.disk_bytes == 0);
    CHECK(x.storage.ranks.empty());
    CHECK(x.http.enabled);
    CHECK(x.http.host == "127.0.0.1");
    CHECK(x.actors.port == port_off);
    CHECK(x.actors.serves_makers());
    CHECK(x.registry.durability == "none");
  }
}

TEST_CASE("config default node: a config with comments reads back unchanged", "[config]") {
  auto config = default_node(3 * gibibyte);
  config.node_name = "a-name";
  SECTION("with the commonly changed keys") {
    const auto keys = first_keys();
    const auto text = to_commented_json(config, std::vector<std::string>(keys.begin(), keys.end()));
    INFO(text);
    const auto read = parse(text, "text");
    for (const auto& wrong : read ? std::vector<problem>{} : read.error())
      FAIL_CHECK(to_string(wrong));
    REQUIRE(read);
    config.attach = {};
    CHECK(*read == config);
    CHECK(line_of_key(text, "node_name") == "  \"node_name\": \"a-name\",");
    CHECK(text.find("// Name of this node in logs, metrics and for clients.") != std::string::npos);
    CHECK(text.find("\"scheduler_threads\"") == std::string::npos);
    CHECK(text.find("// \"tokens_file\": not set") != std::string::npos);
  }
  SECTION("with every key, including lists and unset keys") {
    config.storage.ranks = {{gibibyte, "somewhere", {}}, {2 * gibibyte, {}, 1}};
    config.http.tokens_file = "tokens";
    config.memory.numa = "spread";
    const auto text = to_commented_json(config);
    INFO(text);
    const auto read = parse(text, "text");
    for (const auto& wrong : read ? std::vector<problem>{} : read.error())
      FAIL_CHECK(to_string(wrong));
    REQUIRE(read);
    CHECK(*read == config);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      CHECK(line.size() <= 120);
  }
}

TEST_CASE("config default node: a config that is printed has no salts", "[config]") {
  auto config = default_node(0);
  namespace_spec ns;
  ns.name = "one";
  ns.salt = "a secret of a tenant";
  config.namespaces.push_back(ns);
  CHECK(to_json(config).find("a secret") != std::string::npos);
  CHECK(to_json(without_secrets(config)).find("a secret") == std::string::npos);
  CHECK(to_commented_json(without_secrets(config)).find("a secret") == std::string::npos);
}

} // namespace config_default_node_test
