#include "tests/catch.hpp"
#include "tests/integration/free_ports.hpp"
#include "tests/integration/support.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

namespace readme_test {

/// The first things that a new user does: what README.md tells, and the trace that comes with it.

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

const fs::path source(TROUPE_SOURCE_DIR);

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The blocks of commands, in their order.
std::vector<std::string> shell_blocks(const std::string& text) {
  constexpr std::string_view open = "```sh\n";
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find(open, at)) != std::string::npos;) {
    at += open.size();
    const auto end = text.find("```", at);
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t out = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++out;
  return out;
}

/// The state of a clone after the build, with ports that are free here and slabs as large as needed.
struct fresh_clone {
  fresh_clone() {
    fs::create_directories(directory / "build/release");
    fs::create_symlink(TROUPE_PROGRAM, directory / "build/release/troupe");
    fs::create_symlink(source / "traces", directory / "traces");
    fs::create_directory(directory / "configs");
    for (const auto& x : fs::directory_iterator(source / "configs"))
      if (x.is_regular_file())
        std::ofstream(directory / "configs" / x.path().filename().string()) << adapted(read_file(x.path()));
  }

  std::string adapted(const std::string& text) const {
    return replaced(replaced(replaced(text, "1 GiB", "128 MiB"), "4600", actors_port), "18000", http_port);
  }

  scratch_directory directory;
  std::string actors_port = std::to_string(free_port());
  std::string http_port = std::to_string(free_port());
};

} // namespace

TEST_CASE("readme: the commands of README.md run in order as written") {
  const auto blocks = shell_blocks(read_file(source / "README.md"));
  REQUIRE(blocks.size() == 2);
  // The first has the scripts, which this test is part of.
  CHECK(count(blocks[0], "\n") == 2);
  for (const auto* script : {"scripts/demo", "scripts/test"}) {
    CHECK(count(blocks[0], script) == 1);
    CHECK((fs::status(source / script).permissions() & fs::perms::owner_exec) != fs::perms::none);
  }
  if (std::system("curl --version > /dev/null 2>&1") != 0) {
    WARN("skipped: there is no curl");
    return;
  }
  const fresh_clone here;
  launch shell;
  shell.arguments = {"/bin/bash", "-e", "-u", "-o", "pipefail", "-c", here.adapted(blocks[1])};
  shell.directory = here.directory.path();
  const auto x = run(shell, 5 * patience);
  INFO(x.out << x.err);
  CHECK(x.code == 0);
  // Each command, and none that a shell would have passed over.
  CHECK(count(blocks[1], "build/release/troupe ") == 7);
  CHECK(count(x.out, "single: healthy") == 1);
  CHECK(count(x.out, "Every byte was right") == 2);
  CHECK(count(x.out, "\"event\":\"ready\"") == 2);
  CHECK(count(x.err, " node: stopped") == 2);
  CHECK(x.out.find("\"node_name\": \"single\"") != std::string::npos);
  CHECK(count(x.out, "requests") >= 3);
  // Two nodes, two directories; those of the replay's own node are removed.
  CHECK(entries(here.directory / "data") == std::vector<std::string>{"hf3fs-metadata", "single"});
  CHECK(entries(here.directory.path()) == std::vector<std::string>{"build", "configs", "data", "traces"});
}

TEST_CASE("readme: the sample trace matches its documentation and can be generated again") {
  const auto page = read_file(source / "traces/README.md");
  constexpr std::string_view begin = "    troupe make-trace ";
  const auto at = page.find(begin);
  REQUIRE(at != std::string::npos);
  const auto line = page.substr(at + 4, page.find('\n', at) - at - 4);
  const auto to = line.find(" > traces/sample.jsonl");
  REQUIRE(to != std::string::npos);
  launch shell;
  shell.arguments = {"/bin/bash", "-c", replaced(line.substr(0, to), "troupe", TROUPE_PROGRAM)};
  const auto made = run(shell);
  INFO(made.err);
  CHECK(made.code == 0);
  const auto sample = source / "traces/sample.jsonl";
  CHECK(made.out == read_file(sample));
  CHECK(fs::file_size(sample) <= 200 * 1024);

  const auto says = expected(sample.string());
  CHECK(page.find("`sample.jsonl`: 96 requests") != std::string::npos);
  CHECK(page.find(std::to_string(says.unique_blocks) + " of its 3,168 blocks") != std::string::npos);
  const scratch_directory scratch;
  const auto x = run_replay({"--trace", sample.string(), "--page-bytes", "4096", "--concurrency", "1"}, scratch.path());
  check_clean(x, {});
  CHECK(x.count("requests") == 96);
  CHECK(x.count("blocks") == 3168);
  CHECK(x.count("hit_blocks") == says.hit_blocks);
}

TEST_CASE("readme: a generated trace replays from a file like from the generator") {
  const scratch_directory scratch;
  const auto file = (scratch / "trace.jsonl").string();
  auto command = program_with({"make-trace", "loogle:3,2048,4,128", "--limit", "9"});
  command.stdout_file = file;
  CHECK(run(command).code == 0);
  const auto from_file = expected(file);
  const auto generated = expected("loogle:3,2048,4,128", {}, 9);
  CHECK(from_file.unique_blocks == generated.unique_blocks);
  CHECK(from_file.hit_blocks == generated.hit_blocks);
}

} // namespace readme_test
