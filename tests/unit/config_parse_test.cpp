#include "config/node_config.hpp"
#include "tests/unit/config_support.hpp"

#include <fstream>
#include <unistd.h>

namespace config_parse_test {

using namespace troupe;
using namespace troupe::config;

namespace {

std::string with_rank(std::string_view rank) {
  return replaced(small_config, R"({ "slab_bytes": "8 MiB" })", rank);
}

std::string with_member(std::string_view member) {
  return replaced(small_config, R"("data_dir": "data")", member);
}

} // namespace

TEST_CASE("config parse: a config sets the keys that it has and leaves the others at their defaults", "[config]") {
  const auto config = good(small_config);
  CHECK(config.data_dir == "data");
  CHECK(config.actors.port == port_off);
  CHECK(config.actors.has_socket());
  REQUIRE(config.storage.ranks.size() == 2);
  CHECK(config.storage.ranks[0].slab_bytes == 4 * mebibyte);
  CHECK(config.storage.ranks[1].slab_bytes == 8 * mebibyte);
  CHECK_FALSE(config.storage.ranks[1].directory);
  CHECK_FALSE(config.storage.ranks[1].numa_node);
  REQUIRE(config.namespaces.size() == 1);
  CHECK(config.namespaces[0].name == "chat");
  CHECK(config.namespaces[0].layout == "layer-part-head-token");
  CHECK(config.namespaces[0].geometry.parts == 2);
  CHECK(config.namespaces[0].geometry.page_bytes() == 64 * kibibyte);
  CHECK(config.registry == registry_config{});
  CHECK(config.caf == caf_config{});
}

TEST_CASE("config parse: comments are allowed", "[config]") {
  good("// one\n" + replaced(small_config, "\"storage\"", "/* two\n lines */ \"storage\"") + "// end");
}

TEST_CASE("config parse: a node needs storage and namespaces unless clients may create namespaces", "[config]") {
  CHECK(good("{}", {}, purpose::client) == node_config{});
  CHECK(good("{}") == node_config{});
  for (const auto* none : {R"({"actors": {"make_namespaces": false}})", R"({"actors": {"socket": "off"}})"})
    CHECK(bad(none) ==
          "storage.ranks: a node without HTTP, whose clients create no namespaces, needs at least one "
          "rank\nnamespaces: a node without HTTP, whose clients create no namespaces, needs at least one\n");
}

TEST_CASE("config parse: a value of the wrong type is refused with its position", "[config]") {
  CHECK(bad(with_rank(R"({ "slab_bytes": "4 MiBB" })")) ==
        "storage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got \"4 MiBB\" (line 3)\n");
  CHECK(bad(with_rank(R"({ "slab_bytes": -1 })")) ==
        "storage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got -1 (line 3)\n");
  CHECK(bad(with_rank(R"({ "slab_bytes": 4.5e6 })")) ==
        "storage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got 4.5e6 (line 3)\n");
  CHECK(bad(with_rank(R"({ "slab_bytes": 18446744073709551616 })")) ==
        "storage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got 18446744073709551616 (line 3)\n");
  CHECK(bad(with_rank(R"({ "slab_bytes": null })")) ==
        "storage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got null (line 3)\n");
  CHECK(bad(with_rank("7")) == "storage.ranks[1]: expected an object, got 7 (line 3)\n");
  CHECK(bad(with_rank("[]")) == "storage.ranks[1]: expected an object, got a list (line 3)\n");
  CHECK(bad(with_rank("{}")) ==
        "storage.ranks[1].slab_bytes: is missing: Size of the slab file of each namespace on "
        "this rank, allocated at the first start; 0: none, pages are in memory only. (line 3)\n");
  CHECK(bad(with_member(R"("data_dir": 5)")) == "data_dir: expected a path, got 5 (line 2)\n");
  CHECK(bad(with_member(R"("data_dir": "")")) == "data_dir: expected a path, got \"\" (line 2)\n");
  CHECK(bad(with_member(R"("actors": 5)")) == "actors: expected an object, got 5 (line 2)\n");
  CHECK(bad(with_member(R"("actors": { "port": "80" })")) ==
        "actors.port: expected \"off\" or a whole number, 0 to 65535, got \"80\" (line 2)\n");
  CHECK(bad(with_member(R"("actors": { "port": 80.0 })")) ==
        "actors.port: expected \"off\" or a whole number, 0 to 65535, got 80.0 (line 2)\n");
  CHECK(bad(with_member(R"("actors": { "port": 65536 })")) ==
        "actors.port: expected \"off\" or a whole number, 0 to 65535, got 65536 (line 2)\n");
  CHECK(bad(with_member(R"("http": { "port": 65536 })")) ==
        "http.port: expected \"off\" or a whole number, 0 to 65535, got 65536 (line 2)\n");
  CHECK(bad(with_member(R"("actors": { "insecure": 1 })")) ==
        "actors.insecure: expected true or false, got 1 (line 2)\n");
  CHECK(bad(with_member(R"("log_level": "loud")")) ==
        "log_level: expected \"trace\", \"debug\", \"info\", \"warn\", \"error\" or \"off\", got \"loud\" (line 2)\n");
  CHECK(bad(with_member(R"("drain_timeout": 30)")) ==
        "drain_timeout: expected a time such as \"30 s\", got 30 (line 2)\n");
  CHECK(contains(bad(replaced(small_config, R"("namespaces": [)", R"("namespaces": {}, "x": [)")),
                 "namespaces: expected a list, got an object (line 4)"));
}

TEST_CASE("config parse: common mistakes are refused with the way out", "[config]") {
  CHECK(bad(with_rank(R"({ "slab_bytes": "8G" })")) ==
        "storage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got \"8G\"; did you mean \"8 GiB\" or "
        "\"8 GB\"? (line 3)\n");
  CHECK(bad(with_member(R"("http": { "host": "127.0.0.1:80" })")) ==
        "http.host: expected the name or address of a host, got \"127.0.0.1:80\": the port has a key of its own "
        "(line 2)\n");
  CHECK(
      bad(with_member(R"("http": { "host": "[::1]:80" })")) ==
      "http.host: expected the name or address of a host, got \"[::1]:80\": the port has a key of its own (line 2)\n");
  CHECK(bad(with_member(R"("http": { "host": "[::1]" })")) ==
        "http.host: expected the name or address of a host, got \"[::1]\": write an IPv6 address without brackets "
        "(line 2)\n");
  for (const char* path : {"~/kv", "~", "$HOME/kv"})
    CHECK(bad(with_member(R"("data_dir": ")" + std::string(path) + '"')) ==
          "data_dir: expected a path, got \"" + std::string(path) +
              "\": \"~\" and \"$\" are not replaced here, write the path in full (line 2)\n");
  good(with_member(R"("data_dir": "./~/kv")"));
  // docker-compose names containers like this.
  CHECK(good(with_member(R"("actors": { "host": "my_host", "port": 1, "insecure": true })")).actors.host == "my_host");
  CHECK(good(with_member(R"("actors": { "host": "::1", "port": 1, "insecure": true })")).actors.host == "::1");
}

TEST_CASE("config parse: unknown keys are refused with a suggestion", "[config]") {
  CHECK(bad(with_member(R"("data_dirr": "x")")) == "data_dirr: no such key; did you mean \"data_dir\"? (line 2)\n");
  CHECK(bad(with_member(R"("colour": 1)")) == "colour: no such key (line 2)\n");
  CHECK(bad(with_member(R"("": 1)")) == "[\"\"]: no such key (line 2)\n");
  CHECK(bad(with_member(R"("a b.c": 1)")) == "[\"a b.c\"]: no such key (line 2)\n");
  CHECK(bad(with_member(R"("caf": { "threads\n": 1 })")) == "caf[\"threads\\n\"]: no such key (line 2)\n");
  CHECK(bad(with_rank(R"({ "slab_bytes": "8 MiB", "dir": "x" })")) == "storage.ranks[1].dir: no such key (line 3)\n");
}

TEST_CASE("config parse: a duplicate key is refused", "[config]") {
  CHECK(bad(with_member("\"data_dir\": \"a\",\n\"data_dir\": \"b\"")) ==
        "data_dir: the key is repeated; first at line 2 (line 3)\n");
  CHECK(bad(with_rank(R"({ "slab_bytes": "8 MiB", "slab_bytes": "8 MiB" })")) ==
        "storage.ranks[1].slab_bytes: the key is repeated; first at line 3 (line 3)\n");
  CHECK(bad(with_member(R"("caf": { "x": [ [], { "y": 1, "y": 2 } ] })")) ==
        "caf.x[1].y: the key is repeated; first at line 2 (line 2)\n");
  // An escape is no disguise.
  CHECK(bad(with_member(R"("node_name": "a", "node\u005fname": "b")")) ==
        "node_name: the key is repeated; first at line 2 (line 2)\n");
}

TEST_CASE("config parse: all errors are reported at once", "[config]") {
  const auto text =
      replaced(with_rank(R"({ "slab_bytes": true })"), R"("data_dir": "data")",
               R"("data_dir": [], "actors": { "port": -1 }, "http": { "tls": { "key": "k" } }, "nonsense": {})");
  CHECK(bad(replaced(text, R"("layers": 2)", R"("layers": 0)")) ==
        "data_dir: expected a path, got a list (line 2)\nactors.port: expected \"off\" or a whole number, 0 to 65535, "
        "got -1 (line 2)\nstorage.ranks[1].slab_bytes: expected a size such as \"4 MiB\", got true (line "
        "3)\nnamespaces[0].kv_cache.layers: must be 1 to 1024, got 0 (line 7)\nnonsense: no such key (line "
        "2)\nhttp.tls.certificate: is missing: a certificate needs its key\n");
}

TEST_CASE("config parse: errors of syntax come with line and column", "[config]") {
  CHECK(contains(bad("{\n  \"a\": 1,\n  }"), "test.json: line 3, column 3: syntax error"));
  CHECK(bad("") == "test.json: line 1, column 1: the text is empty\n");
  CHECK(contains(bad("  \n "), "test.json: line 2, column 1: syntax error"));
  CHECK(contains(bad("node_name: yaml\n"), "a config is one JSON object, which begins with {"));
  CHECK_FALSE(contains(bad("{\n  \"a\": 1,\n  }"), "which begins with {"));
  CHECK(contains(bad("{"), "test.json: line 1, column 1: syntax error"));
  CHECK(contains(bad("{} {}"), "test.json: line 1, column 4: syntax error"));
  CHECK(contains(bad("{\"a\": \"\xff\"}"), "test.json: line 1, column 8: syntax error"));
  CHECK(contains(bad("{\"a\": 1e999}"), "test.json: line 1, column 12: number overflow"));
  CHECK(contains(bad("{ /* never closed"), "test.json: line 1"));
  CHECK(contains(bad(std::string("{}\n\0rubbish", 11)), "test.json: line 2, column 1: a NUL byte"));
  CHECK(bad("[]") == "test.json: expected an object, got a list\n");
  CHECK(bad("null") == "test.json: expected an object, got null\n");
}

TEST_CASE("config parse: a document cannot exhaust the stack or the memory", "[config]") {
  CHECK(bad(std::string(1'000'000, '[')) == "test.json: more than 16 levels of lists and objects (line 1)\n");
  std::string nested;
  for (int i = 0; i < 100'000; ++i)
    nested += "{\"a\":";
  CHECK(bad(nested) == "test.json: more than 16 levels of lists and objects (line 1)\n");
  CHECK(bad(std::string(2 * mebibyte, ' ')) == "test.json: a config can have at most 1 MiB\n");
  std::string ranks;
  for (int i = 0; i < 65; ++i)
    ranks += R"({ "slab_bytes": "8 MiB" },)";
  ranks.pop_back();
  CHECK(bad(with_rank(ranks)) == "storage.ranks: 66 entries, at most 64 are allowed (line 3)\n");
}

TEST_CASE("config parse: files that the node writes are below its data directory", "[config]") {
  const auto with_directory = [](std::string_view directory) {
    return with_rank(R"({ "slab_bytes": "8 MiB", "directory": ")" + std::string{directory} + "\" }");
  };
  CHECK(good(with_directory("disk1")).storage.ranks[1].directory == "disk1");
  CHECK(good(with_directory("./a/b..c")).storage.ranks[1].directory == "./a/b..c");
  const auto* escape =
      GENERATE("/tmp", "..", "../x", "a/../../x", "a/..", "disk/../other", "", ".", "./", "a\\u0000b", "a\\n");
  INFO(escape);
  CHECK(contains(bad(with_directory(escape)),
                 "storage.ranks[1].directory: expected a relative path below data_dir, without \"..\", got "));
}

TEST_CASE("config parse: names that become file names and labels have plain characters only", "[config]") {
  const auto* name = GENERATE("", "a/b", "..", ".hidden", "-x", "a b", "ä", "a\\u0000",
                              "0123456789012345678901234567890123456789012345678901234567890123x");
  INFO(name);
  CHECK(
      contains(bad(replaced(small_config, "\"chat\"", '"' + std::string{name} + '"')), "namespaces[0].name: expected"));
  CHECK(contains(bad(with_member(R"("node_name": ")" + std::string{name} + '"')), "node_name: expected"));
}

TEST_CASE("config parse: a long value is truncated between characters", "[config]") {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += "€";
  const auto problems = bad(with_member(R"("drain_timeout": ")" + text + '"'));
  CHECK(problems == "drain_timeout: expected a time such as \"30 s\", got \"" + text.substr(0, 48) + "\"… (line 2)\n");
  CHECK(contains(bad(with_member(R"("http": { "port": 1)" + std::string(300, '0') + "}")), "got 1000000"));
}

TEST_CASE("config parse: files are loaded, and unreadable files are reported", "[config]") {
  const auto directory = std::filesystem::temp_directory_path() / ("troupe-config-" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  const auto file = directory / "node.json";
  std::ofstream{file} << small_config;
  CHECK(load(file) == good(small_config));
  std::ofstream{file} << "{\n\n]";
  const auto broken = load(file);
  REQUIRE_FALSE(broken);
  CHECK(contains(lines(broken.error()), file.string() + ": line 3, column 1: syntax error"));
  const auto missing = load(directory / "none.json");
  REQUIRE_FALSE(missing);
  CHECK(lines(missing.error()) ==
        (directory / "none.json").string() + ": cannot be opened: No such file or directory\n");
  const auto folder = load(directory);
  REQUIRE_FALSE(folder);
  CHECK(lines(folder.error()) == directory.string() + ": cannot be read: Is a directory\n");
  std::ofstream{file} << std::string(mebibyte + 1, ' ');
  const auto large = load(file);
  REQUIRE_FALSE(large);
  CHECK(lines(large.error()) == file.string() + ": a config can have at most 1 MiB\n");
  std::filesystem::remove_all(directory);
}

TEST_CASE("config parse: the effective config loads back unchanged", "[config]") {
  const auto round_trip = [](const node_config& config, purpose what_for) {
    const auto text = to_json(config);
    INFO(text);
    CHECK(good(text, {}, what_for) == config);
    CHECK(to_json(good(text, {}, what_for)) == text);
  };
  round_trip(good(small_config), purpose::server);
  round_trip(node_config{}, purpose::client);
  auto other = good(small_config);
  other.node_name = "other";
  other.data_dir = "/var/lib/\"troupe\" \\ €";
  other.log_level = "off";
  other.drain_timeout = std::chrono::nanoseconds{1'234'567'891};
  other.statistics_interval = {};
  other.actors.socket = "off";
  other.actors.host = "0.0.0.0";
  other.actors.port = 0;
  other.actors.tls = {"c.pem", "k.pem", "a.pem"};
  other.actors.handshake_time = std::chrono::milliseconds{20};
  other.storage.ranks[0] = {12'345'677, "fast/disk", 0};
  other.memory.numa = "spread";
  other.storage.low_watermark = 1.0 / 3;
  other.storage.high_watermark = 0.4;
  other.storage.direct = false;
  other.namespaces[0].salt = "tenant 7";
  other.namespaces[0].geometry.further = {{2, {1, 1, 132, 1}}, {1, {2, 1, 64, 2}}};
  other.io.engine = "threads";
  other.caf.scheduler_policy = "sharing";
  round_trip(other, purpose::server);
}

TEST_CASE("config parse: sizes and times are written with units", "[config]") {
  const auto text = to_json(good(small_config));
  CHECK(contains(text, "\"slab_bytes\": \"4 MiB\""));
  CHECK(contains(text, "\"lease_default\": \"30 s\""));
  CHECK(contains(text, "\"low_watermark\": 0.01"));
  CHECK(contains(
      text,
      "  \"actors\": {\n    \"socket\": \"troupe.sock\",\n    \"host\": \"127.0.0.1\",\n    \"port\": \"off\",\n"));
  CHECK(contains(to_json(node_config{}), "\"namespaces\": []"));
}

TEST_CASE("config parse: a config that a program builds follows the same rules", "[config]") {
  auto config = good(small_config);
  CHECK(validate(config).empty());
  CHECK(lines(validate(node_config{}, purpose::client)).empty());
  config.registry.shards = 257;
  config.drain_timeout = std::chrono::seconds{-1};
  config.storage.low_watermark = std::numeric_limits<double>::quiet_NaN();
  config.namespaces[0].model.clear();
  config.namespaces[0].geometry.heads = 0;
  const auto text = lines(validate(config));
  INFO(text);
  CHECK(contains(text, "registry.shards: must be 1 to 256, got 257"));
  CHECK(contains(text, "drain_timeout: expected a time such as \"30 s\", got -1000000000"));
  CHECK(contains(text, "storage.low_watermark: expected a number, 0.0 to 0.5, got null"));
  CHECK(contains(text, "namespaces[0].model: expected text of 1 to 256 bytes, got \"\""));
  CHECK(contains(text, "namespaces[0].kv_cache.heads: must be 1 to 1024, got 0"));
  config = good(small_config);
  config.namespaces[0].salt = "\xff";
  CHECK_FALSE(validate(config).empty());
}

} // namespace config_parse_test
