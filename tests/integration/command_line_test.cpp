#include "tests/catch.hpp"
#include "tests/integration/listener.hpp"
#include "tests/integration/support.hpp"

#include <fstream>

namespace command_line_test {

using namespace troupe::test;
using nlohmann::json;

namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("command line: help and version print to stdout and exit with 0") {
  for (const auto& command :
       {arguments{"--help"}, arguments{"serve", "--help"}, arguments{"init", "--help"}, arguments{"replay", "--help"},
        arguments{"check-config", "--help"}, arguments{"make-trace", "--help"}, arguments{"status", "--help"},
        arguments{"top", "--help"}, arguments{"list-namespaces", "--help"}, arguments{"remove-namespace", "--help"},
        arguments{"check-slabs", "--help"}, arguments{"whatif", "--help"}, arguments{"cluster", "--help"},
        arguments{"explain", "--help"}}) {
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
  for (const auto* part :
       {"(commit ", "protocol of nodes and clients: ", "page ", "slab file ", "index ", "left out of the build: "})
    CHECK(contains(version.out, part));
  CHECK(version.err.empty());
}

TEST_CASE("command line: an invalid command line exits with 2 and a reason on stderr only") {
  const std::vector<arguments> command_lines{
      {},
      {"bogus"},
      {"--bogus"},
      {"serve", "--config"},
      {"serve", "--config", "x", "--bogus"},
      {"remove-namespace"},
      {"remove-namespace", "mine", "--url", "ftp://localhost"},
      {"list-namespaces", "--token-file", "/no/such/token"},
      {"cluster"},
      {"cluster", "statue"},
      {"replay"},
      {"replay", "--trace", "loogle:1", "--concurrency", "0"},
      {"replay", "--trace", "loogle:1", "--concurrency", "many"},
      {"replay", "--trace", "loogle:1", "--ranks", "0"},
      {"replay", "--trace", "loogle:1", "--limit", "-1"},
      {"replay", "--trace", "loogle:1", "--page-bytes", "4097"},
      {"replay", "--trace", "loogle:1", "--page-bytes", "0"},
      {"replay", "--trace", "/no/such/trace.jsonl"},
      {"make-trace"},
      {"make-trace", "/no/such/trace.jsonl"},
      {"make-trace", "loogle:1", "--block-tokens", "0"},
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
      {"check-slabs"},
      {"check-slabs", "--config", "/no/such/file"},
      {"whatif"},
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

TEST_CASE("command line: an unknown command or option is named with a suggestion") {
  struct wrong_word {
    arguments command;
    const char* said;
  };
  const std::vector<wrong_word> words{
      {{"foo"}, "unknown command 'foo'"},
      {{"sevre"}, "unknown command 'sevre'; did you mean 'serve'?"},
      {{"relpay", "--trace", "x"}, "unknown command 'relpay'; did you mean 'replay'?"},
      {{"versoin"}, "did you mean 'version'?"},
      {{"replay", "--tarce", "x"}, "unknown option '--tarce'; did you mean '--trace'?"},
      {{"replay", "--trace", "loogle:1", "--page-byte=4096"}, "'--page-byte'; did you mean '--page-bytes'?"},
      {{"serve", "--confg", "x"}, "unknown option '--confg'; did you mean '--config'?"},
      {{"serve", "good.json"}, "not expected: good.json; did you mean --config good.json?"},
      {{"check-config", "--bogus", "x"}, "unknown option '--bogus'"},
      {{"--vresion"}, "unknown option '--vresion'; did you mean '--version'?"},
  };
  for (const auto& wrong : words) {
    const auto x = run(program_with(wrong.command));
    INFO(wrong.said << ": " << x.err);
    CHECK(x.code == 2);
    CHECK(x.out.empty());
    CHECK(contains(x.err, wrong.said));
  }
}

TEST_CASE("command line: invalid traces and targets of replay and whatif are refused with the remedy") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path())).string();
  std::filesystem::create_directory(scratch / "data");
  struct mistake {
    arguments command;
    std::vector<const char*> said;
  };
  const std::vector<mistake> mistakes{
      {{"replay", "--trace", "loogl:20"}, {"did you mean the generator 'loogle:20'?"}},
      {{"whatif", "--trace", "mixd:1,20"}, {"did you mean the generator 'mixed:1,20'?"}},
      {{"whatif", "--record", "data"}, {"'data'", "registry.record_keys", "requests.jsonl"}},
      {{"whatif", "--record", "no-such"}, {"data_dir", "'no-such'"}},
      {{"replay", "--trace", "loogle:1", "--attach", "http://127.0.0.1:18000"}, {"is a URL", "actors.port"}},
      {{"replay", "--trace", "loogle:1", "--attach", "unix:data"}, {"is a URL", "data_dir"}},
      {{"replay", "--trace", "loogle:1", "--attach", "d9"}, {"no such path exists", "./d9"}},
      {{"replay", "--trace", "loogle:1", "--attach", "data", "--make-namespace", config},
       {"is the config of a node", "a single object of `namespaces`"}},
  };
  for (const auto& wrong : mistakes) {
    auto command = program_with(wrong.command);
    command.directory = scratch.path();
    const auto x = run(command);
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.out.empty());
    for (const auto* part : wrong.said)
      CHECK(contains(x.err, part));
  }
}

TEST_CASE("command line: the commands help and version do the same as the options") {
  const auto same = [](const arguments& word, const arguments& option) {
    const auto x = run(program_with(word));
    INFO(x.err);
    CHECK(x.code == 0);
    CHECK_FALSE(x.out.empty());
    CHECK(x.out == run(program_with(option)).out);
  };
  same({"help"}, {"--help"});
  same({"help", "replay"}, {"replay", "--help"});
  same({"version"}, {"--version"});
}

TEST_CASE("command line: numbers out of range are refused with their bounds") {
  const auto said = [](const char* option, const char* value) {
    const auto x = run(program_with({"replay", "--trace", "loogle:1", option, value}));
    CHECK(x.code == 2);
    return x.err;
  };
  CHECK(contains(said("--limit", "-1"), "--limit: expected a whole number, got '-1'"));
  CHECK(contains(said("--limit", "1e3"), "expected a whole number, got '1e3'"));
  CHECK(contains(said("--concurrency", "257"), "expected a whole number from 1 to 256, got '257'"));
  CHECK(contains(said("--device", "tpu"), "--device: expected host, cuda or cuda:N, got 'tpu'"));
  // The same maximum in every check.
  CHECK(contains(said("--page-bytes", "134217728"), "from 4096 to 67108864, got '134217728'"));
  CHECK(contains(said("--page-bytes", "4097"), "a multiple of 4 KiB, from 4 KiB to 64 MiB"));
}

TEST_CASE("command line: a write error on stdout is an error of every command") {
  const scratch_directory scratch;
  const auto config = write_config(scratch.path(), node_config(scratch.path())).string();
  for (const auto& command :
       {arguments{"--help"}, arguments{"--version"}, arguments{"check-config", config},
        arguments{"make-trace", "loogle:2,1024,3,128"}, arguments{"serve", "--config", config},
        arguments{"replay", "--trace", "loogle:1,512,2,64", "--config", config},
        arguments{"replay", "--json", "--trace", "loogle:1,512,2,64", "--config", config},
        arguments{"replay", "--json", "--engine", "--trace", "loogle:1,512,2,64", "--config", config}}) {
    auto how = program_with(command);
    how.stdout_file = "/dev/full";
    const auto x = run(how);
    INFO(command.front() << ": " << x.err);
    CHECK(x.code == 1);
    CHECK(contains(x.err, "cannot write to stdout: No space left on device"));
  }
}

TEST_CASE("command line: check-config checks the files and directories that a config names") {
  const scratch_directory scratch;
  std::ofstream(scratch / "tokens") << "admin 0123456789abcdef0123456789abcdef\n";
  std::ofstream(scratch / "no.pem") << "no certificate\n";
  std::filesystem::permissions(scratch / "tokens", static_cast<std::filesystem::perms>(0600));
  auto config = node_config(scratch.path());
  config["http"] = {{"enabled", true}, {"host", "127.0.0.1"}, {"port", 0}};
  config["http"]["tokens_file"] = (scratch / "tokens").string();
  const auto file = write_config(scratch.path(), config).string();
  const auto good = run(program_with({"check-config", file}));
  INFO(good.err);
  CHECK(good.code == 0);
  CHECK_FALSE(std::filesystem::exists(scratch / "data")); // looking makes nothing

  const auto said = [&](const arguments& settings) {
    auto command = program_with({"check-config", file});
    for (const auto& x : settings)
      command.arguments.insert(command.arguments.end(), {"--set", x});
    const auto x = run(command);
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.out.empty());
    return x.err;
  };
  const auto pem = (scratch / "no.pem").string();
  CHECK(contains(said({"http.tokens_file=" + (scratch / "none").string()}), "http.tokens_file: "));
  CHECK(contains(said({"http.tls.certificate=" + pem, "http.tls.key=" + pem}), "http.tls: "));
  CHECK(contains(said({"data_dir=" + file}), "data_dir: "));
  CHECK(contains(said({"data_dir=/dev/null/data"}), "data_dir: "));
  std::filesystem::create_directories(scratch / "data");
  std::filesystem::permissions(scratch / "data", static_cast<std::filesystem::perms>(0700));
  std::ofstream(scratch / "data/taken") << "a file\n";
  CHECK(contains(said({"storage.ranks[0].directory=taken"}), "storage.ranks[0].directory: "));
  std::filesystem::permissions(scratch / "data", static_cast<std::filesystem::perms>(0755));
  CHECK(contains(said({}), "chmod 700 "));
  // All at once.
  const auto all =
      said({"http.tokens_file=" + (scratch / "none").string(), "http.tls.certificate=" + pem, "http.tls.key=" + pem});
  for (const auto* part : {"data_dir: ", "http.tokens_file: ", "http.tls: "})
    CHECK(contains(all, part));
}

TEST_CASE("command line: check-config warns of ports in use and of a disk that is too small") {
  const scratch_directory scratch;
  const listener taken(listener::manner::silent);
  const auto port = std::to_string(taken.port());
  const auto file = write_config(scratch.path(), node_config(scratch.path())).string();
  const auto warned = [&](const arguments& settings) {
    auto command = program_with({"check-config", file});
    for (const auto& x : settings)
      command.arguments.insert(command.arguments.end(), {"--set", x});
    const auto x = run(command);
    CHECK(x.code == 0);
    CHECK_FALSE(x.out.empty());
    return x.err;
  };
  CHECK(warned({}).empty());
  for (const std::string section : {"http", "handshake.http", "lmcache", "actors"}) {
    arguments settings{section + ".port=" + port};
    settings.push_back(section == "actors" ? "actors.insecure=true" : section + ".enabled=true");
    const auto said = warned(settings);
    INFO(said);
    CHECK(contains(said, "warning: " + section + ".port: "));
    CHECK(contains(said, "another process uses that port"));
  }
  const auto small = warned({"storage.disk_bytes=1000 TiB"});
  INFO(small);
  CHECK(contains(small, "warning: storage.disk_bytes: is 1000 TiB, and the disk of "));
  CHECK(contains(small, "the rest is never used"));
}

TEST_CASE("command line: check-config prints the effective config, which loads to the same values") {
  const scratch_directory scratch;
  // Not more memory than slots, which would cause a warning.
  const auto file =
      write_config(scratch.path(), node_config(scratch.path(), {.ranks = 2, .memory_bytes = little_memory}));
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

TEST_CASE("command line: check-config accepts the packaged configs") {
  for (const auto& x : std::filesystem::directory_iterator(std::filesystem::path(TROUPE_SOURCE_DIR) / "configs")) {
    if (x.path().extension() != ".json")
      continue;
    const auto outcome = run(program_with({"check-config", x.path().string()}));
    INFO(x.path() << ": " << outcome.err);
    CHECK(outcome.code == 0);
  }
}

TEST_CASE("command line: the option --set overrides one value and the last one wins") {
  const scratch_directory scratch;
  const auto file = write_config(scratch.path(), node_config(scratch.path())).string();
  const auto x = run(program_with({"check-config", file, "--set", "http.port=4711", "--set", "io.engine=threads",
                                   "--set", "registry.lease_default=5 s", "--set", "io.engine=io_uring", "--set",
                                   "storage.ranks[0].slab_bytes=1 GiB"}));
  INFO(x.err);
  REQUIRE(x.code == 0);
  const auto effective = json::parse(x.out);
  CHECK(effective.at("http").at("port") == 4711);
  CHECK(effective.at("io").at("engine") == "io_uring");
  CHECK(effective.at("registry").at("lease_default") == "5 s");
  CHECK(effective.at("storage").at("ranks").at(0).at("slab_bytes") == "1 GiB");
}

TEST_CASE("command line: an invalid config is refused with the path of the value") {
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
      {"/actors/insecure", false, "actors.port: "},
      {"/actors/port", "80", "actors.port: "},
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

TEST_CASE("command line: a config with a JSON syntax error is refused with its line") {
  const scratch_directory scratch;
  const auto file = scratch / "broken.json";
  std::ofstream(file) << "{\n  // a comment is fine\n  \"node_name\": \"a\",\n  \"data_dir\": }\n";
  const auto x = run(program_with({"check-config", file.string()}));
  INFO(x.err);
  CHECK(x.code == 2);
  CHECK(contains(x.err, "broken.json"));
  CHECK(contains(x.err, "line 4"));
}

TEST_CASE("command line: values of --set are checked like those of the file") {
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

} // namespace command_line_test
