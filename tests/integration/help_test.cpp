#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace help_test {

/// `troupe help TOPIC`.

using namespace troupe::test;

namespace {

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

std::set<std::string> topics() {
  const auto x = run(program_with({"help", "topics"}));
  REQUIRE(x.code == 0);
  std::set<std::string> out;
  std::istringstream lines(x.out);
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line))
    if (!line.empty())
      out.insert(line.substr(0, line.find(' ')));
  return out;
}

} // namespace

TEST_CASE("help: help lists the pages of the documentation, and prints each") {
  const auto all = topics();
  for (const char* topic : {"configuration", "install", "kubernetes", "operations", "replay.md"})
    CHECK(all.contains(topic));
  CHECK_FALSE(all.contains("STYLE"));
  for (const auto& topic : all) {
    const auto x = run(program_with({"help", topic}));
    INFO(topic << ": " << x.err);
    CHECK(x.code == 0);
    CHECK(x.err.empty());
    CHECK(contains(x.out, "\n==="));
    // The title is the one of the file.
    std::ifstream page(std::filesystem::path(TROUPE_SOURCE_DIR) / "docs" / (topic.substr(0, topic.find('.')) + ".md"));
    std::string title;
    std::getline(page, title);
    CHECK(x.out.substr(0, x.out.find('\n')) == title.substr(2));
  }
}

TEST_CASE("help: help prints the section that a warning of a node names") {
  const auto x = run(program_with({"help", "docs/operations.md#slab_damaged"}));
  CHECK(x.code == 0);
  CHECK(x.out.starts_with("slab_damaged\n"));
  CHECK(x.out.size() < 2000);
  CHECK(run(program_with({"help", "operations#slab_damaged"})).out == x.out);
  const auto wrong = run(program_with({"help", "operations#slab_demaged"}));
  CHECK(wrong.code == 2);
  CHECK(contains(wrong.err, "'operations' has no section 'slab_demaged'"));
}

TEST_CASE("help: the name of a command is the command, also where a page has that name") {
  CHECK(contains(run(program_with({"help", "replay"})).out, "Usage: troupe replay"));
  CHECK(contains(run(program_with({"help", "cluster", "status"})).out, "Usage: troupe cluster"));
  CHECK(run(program_with({"help", "replay.md"})).out.starts_with("Replaying a trace\n"));
  CHECK(contains(run(program_with({"help"})).out, "`troupe help topics`"));
}

TEST_CASE("help: an unknown topic is refused with the nearest command or topic") {
  const std::vector<std::pair<const char*, const char*>> words{
      {"configuraton", "no command or topic 'configuraton'; did you mean 'configuration'?"},
      {"sevre", "did you mean 'serve'?"},
      {"topcis", "did you mean 'topics'?"},
      {"STYLE", "no command or topic 'STYLE'"},
      {"", "no command or topic ''"}};
  for (const auto& [word, said] : words) {
    const auto x = run(program_with({"help", word}));
    INFO(x.err);
    CHECK(x.code == 2);
    CHECK(x.out.empty());
    CHECK(contains(x.err, said));
    CHECK(contains(x.err, "`troupe help topics`"));
  }
}

} // namespace help_test
