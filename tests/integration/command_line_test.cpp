#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <fstream>

using namespace troupe::test;
using nlohmann::json;

namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("help and version go to stdout and are a success") {
  for (const auto& command : {arguments{"--help"}, arguments{"serve", "--help"}, arguments{"replay", "--help"},
                              arguments{"check-config", "--help"}}) {
    const auto x = run(program_with(command));
    INFO(x.out << x.err);
    CHECK(x.code == 0);
    CHECK(x.err.empty());
    CHECK(contains(x.out, "--help"));
    CHECK(contains(x.out, "Usage: troupe"));
  }
  for (const auto* command : {"serve", "replay", "check-config"}) {
    CHECK(contains(run(program_with({"--help"})).out, command));
    CHECK(contains(run(program_with({command, "--help"})).out, "--set"));
  }
  const auto version = run(program_with({"--version"}));
  CHECK(version.code == 0);
  CHECK(version.out.starts_with("troupe "));
  CHECK(version.err.empty());
}

TEST_CASE("a wrong command line ends with 2, a reason on stderr and nothing on stdout") {
  const std::vector<arguments> command_lines{
      {},
      {"bogus"},
      {"--bogus"},
      {"serve"},
      {"serve", "--config"},
      {"serve", "--config", "x", "--bogus"},
      {"replay"},
      {"replay", "--trace", "loogle:1", "--concurrency", "0"},
      {"replay", "--trace", "loogle:1", "--concurrency", "many"},
      {"replay", "--trace", "loogle:1", "--ranks", "0"},
      {"replay", "--trace", "loogle:1", "--limit", "-1"},
      {"replay", "--trace", "loogle:1", "--page-bytes", "4097"},
      {"replay", "--trace", "loogle:1", "--page-bytes", "0"},
      {"replay", "--trace", "loogle:1", "--capacity-pages", "1"},
      {"replay", "--trace", "loogle:x"},
      {"replay", "--trace", "loogle:1,2,3,4,5"},
      {"replay", "--trace", "loogle:0"},
      {"replay", "--trace", "loogle:1", "--attach", "127.0.0.1"},
      {"replay", "--trace", "loogle:1", "--attach", "127.0.0.1:0"},
      {"replay", "--trace", "loogle:1", "--attach", "127.0.0.1:65536"},
      {"replay", "--trace", "loogle:1", "--attach", ":1"},
      {"replay", "--trace", "loogle:1", "--attach", "127.0.0.1:1", "--config", "x"},
      {"replay", "--trace", "loogle:1", "--attach", "127.0.0.1:1", "--ranks", "2"},
      {"replay", "--trace", "loogle:1", "--attach-limit", "5"},
      {"replay", "--trace", "loogle:1", "--namespace", "no-such"},
      {"replay", "--trace", "loogle:1", "--set", "no.such.key=1"},
      {"check-config"},
      {"check-config", "/no/such/file"},
      {"check-config", "a", "b"},
  };
  const scratch_directory scratch;
  for (const auto& wrong : command_lines) {
    std::string line;
    for (const auto& word : wrong)
      line.append(" ").append(word);
    INFO("troupe" << line);
    auto command = program_with(wrong);
    command.directory = scratch.path();
    const auto x = run(command);
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.out.empty());
    CHECK_FALSE(x.err.empty());
    CHECK(entries(scratch.path()).empty());
  }
}

TEST_CASE("check-config prints the effective config, which loads again to the same") {
  const scratch_directory scratch;
  const auto file = write_config(scratch.path(), node_config(scratch.path(), {.ranks = 2}));
  const auto first = run(program_with({"check-config", file.string()}));
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK(first.err.empty());
  const auto effective = json::parse(first.out);
  CHECK(effective.at("registry").at("shards").is_number()); // a default that the file does not have
  CHECK(effective.at("storage").at("ranks").size() == 2);

  const auto again = scratch / "effective.json";
  std::ofstream(again) << first.out;
  const auto second = run(program_with({"check-config", again.string()}));
  CHECK(second.code == 0);
  CHECK(second.out == first.out);
  CHECK(entries(scratch.path()) == std::vector<std::string>{"effective.json", "node.json"});
}

TEST_CASE("check-config accepts the configs that come with the program") {
  for (const auto& x : std::filesystem::directory_iterator(std::filesystem::path(TROUPE_SOURCE_DIR) / "configs")) {
    if (x.path().extension() != ".json")
      continue;
    const auto outcome = run(program_with({"check-config", x.path().string()}));
    INFO(x.path() << ": " << outcome.err);
    CHECK(outcome.code == 0);
  }
}

TEST_CASE("the option --set overrides one value, and the later of two wins") {
  const scratch_directory scratch;
  const auto file = write_config(scratch.path(), node_config(scratch.path())).string();
  const auto x = run(program_with({"check-config", file, "--set", "actors.port=4711", "--set", "io.engine=threads",
                                   "--set", "registry.lease_default=5 s", "--set", "io.engine=io_uring", "--set",
                                   "storage.ranks[0].slab_bytes=1 GiB"}));
  INFO(x.err);
  REQUIRE(x.code == 0);
  const auto effective = json::parse(x.out);
  CHECK(effective.at("actors").at("port") == 4711);
  CHECK(effective.at("io").at("engine") == "io_uring");
  CHECK(effective.at("registry").at("lease_default") == "5 s");
  CHECK(effective.at("storage").at("ranks").at(0).at("slab_bytes") == "1 GiB");
}

TEST_CASE("a bad config is refused with the path inside the file") {
  struct wrong_value {
    const char* pointer;
    json value;
    const char* path;
  };
  const std::vector<wrong_value> values{
      {"/storage/ranks/1/slab_bytes", "a lot", "storage.ranks[1].slab_bytes: "},
      {"/storage/ranks/1/slab_bytes", 7, "storage.ranks[1].slab_bytes: "},
      {"/storage/ranks/1/slab_byte", "1 GiB", "storage.ranks[1].slab_byte: "},
      {"/actors/port", 65536, "actors.port: "},
      {"/actors/port", "80", "actors.port: "},
      {"/actors/host", "0.0.0.0", "actors.host: "},
      {"/namespaces/0/world_size", 3, "namespaces[0].world_size: "},
      {"/namespaces/0/dtype", "int7", "namespaces[0].dtype: "},
      {"/namespaces/0/kv_cache/heads", nullptr, "namespaces[0].kv_cache.heads: "},
      {"/bogus", 1, "bogus: "},
      {"/data_dir", 1, "data_dir: "},
      {"/io/engine", "magic", "io.engine: "},
  };
  const scratch_directory scratch;
  for (const auto& wrong : values) {
    auto config = node_config(scratch.path(), {.ranks = 2});
    config[json::json_pointer(wrong.pointer)] = wrong.value;
    const auto file = write_config(scratch.path(), config).string();
    INFO(wrong.pointer << " = " << wrong.value.dump());
    for (const auto& command : {arguments{"check-config", file}, arguments{"serve", "--config", file},
                                arguments{"replay", "--trace", "loogle:1,64,1,64", "--config", file}}) {
      const auto x = run(program_with(command));
      INFO(x.err);
      CHECK(x.code == 2);
      CHECK(x.out.empty());
      CHECK(contains(x.err, wrong.path));
    }
  }
  CHECK(entries(scratch.path()) == std::vector<std::string>{"node.json"});
}

TEST_CASE("a config that is no JSON is refused with its line") {
  const scratch_directory scratch;
  const auto file = scratch / "broken.json";
  std::ofstream(file) << "{\n  // a comment is fine\n  \"node_name\": \"a\",\n  \"data_dir\": }\n";
  const auto x = run(program_with({"check-config", file.string()}));
  INFO(x.err);
  CHECK(x.code == 2);
  CHECK(contains(x.err, "broken.json"));
  CHECK(contains(x.err, "line 4"));
}

TEST_CASE("the option --set is checked like the file") {
  const scratch_directory scratch;
  const auto file = write_config(scratch.path(), node_config(scratch.path())).string();
  for (const auto* wrong : {"actors.port=high", "no.such=1", "actors.port", "=1", "storage.ranks[7].slab_bytes=1 GiB",
                            "storage.ranks[0].slab_bytes=1"}) {
    const auto x = run(program_with({"check-config", file, "--set", wrong}));
    INFO("--set " << wrong << ": " << x.err);
    CHECK(x.code == 2);
    CHECK(x.out.empty());
    CHECK_FALSE(x.err.empty());
  }
}
