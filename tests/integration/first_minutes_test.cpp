#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <csignal>
#include <fstream>
#include <sstream>

namespace first_minutes_test {

using namespace troupe::test;
using nlohmann::json;
using stream = process::stream;

namespace {

/// A node that is given no config, in a directory of its own, on a free port.
launch node_without_config(const scratch_directory& directory, arguments more = {}) {
  arguments all{"serve", "--set", "http.port=0", "--set", "memory.bytes=64 MiB"};
  all.insert(all.end(), more.begin(), more.end());
  auto out = program_with(std::move(all));
  out.directory = directory.path();
  return out;
}

int ended(process& node) {
  node.send(SIGTERM);
  return node.wait();
}

} // namespace

TEST_CASE("first minutes: serve without a config starts a usable node and reports its settings") {
  const scratch_directory directory;
  process node(node_without_config(directory));
  const auto ready = json::parse(node.wait_for_line(stream::out, "\"ready\"").text);
  CHECK(ready.at("http").at("host") == "127.0.0.1");
  CHECK(ready.at("actors").at("socket").get<std::string>().ends_with("troupe-data/troupe.sock"));
  CHECK_FALSE(ready.at("actors").contains("port"));
  node.wait_for_line(stream::err, "no config given: pages are in memory only");
  node.wait_for_line(stream::err, "`troupe init > node.json`");
  const auto opened = node.wait_for_line(stream::err, "opened: ").text;
  INFO(opened);
  for (const auto* part :
       {"64 MiB for pages in ", "slabs: none", "durability: none", "troupe.sock", "HTTP: 127.0.0.1:"})
    CHECK(opened.find(part) != std::string::npos);

  const auto namespaces = directory / "space.json";
  std::ofstream(namespaces) << node_config(directory.path()).at("namespaces").at(0);
  const auto played = run_replay({"--attach", (directory / "troupe-data").string(), "--make-namespace",
                                  namespaces.string(), "--trace", "loogle:2,256,4,64"});
  CHECK(played.code == 0);
  CHECK(played.count("hit_blocks") > 0);
  CHECK(ended(node) == 0);
}

TEST_CASE("first minutes: init prints a valid config that serve accepts") {
  const scratch_directory directory;
  for (const auto& more : {arguments{"init"}, arguments{"init", "--all"},
                           arguments{"init", "--set", "node_name=mine", "--set", "io.engine=threads"}}) {
    const auto printed = run(program_with(more));
    INFO(printed.out << printed.err);
    CHECK(printed.code == 0);
    CHECK(printed.out.starts_with("// "));
    const auto file = directory / "node.json";
    std::ofstream(file) << printed.out;
    const auto checked =
        run(program_with({"check-config", file.string(), "--set", "data_dir=" + (directory / "d").string()}));
    INFO(checked.err);
    CHECK(checked.code == 0);
    CHECK((checked.out.find("\"mine\"") != std::string::npos) == (more.size() > 2));
  }
  CHECK(run(program_with({"init", "--set", "nothing=1"})).code == 2);
  CHECK(run(program_with({"serve", "--set", "nothing=1"})).code == 2);
}

TEST_CASE("first minutes: every line of the JSON log has the same four fields, whatever the text contains") {
  const scratch_directory directory;
  process node(node_without_config(directory, {"--set", "log.format=json", "--set", "node_name=\"a\\\"b\""}));
  CHECK(node.wait() == 2); // a name has no quotes
  process sound(node_without_config(directory, {"--set", "log.format=json"}));
  sound.wait_for_line(stream::out, "\"ready\"");
  CHECK(ended(sound) == 0);
  std::istringstream log(sound.text(stream::err));
  std::size_t lines = 0;
  for (std::string line; std::getline(log, line); ++lines) {
    INFO(line);
    const auto x = json::parse(line, nullptr, false);
    REQUIRE(x.is_object());
    CHECK(x.size() == 4);
    for (const auto* key : {"time", "level", "component", "text"})
      CHECK(x.value(key, json()).is_string());
    CHECK(x.at("time").get<std::string>().ends_with("Z"));
  }
  CHECK(lines > 3);
}

} // namespace first_minutes_test
