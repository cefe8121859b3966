#include "tests/catch.hpp"

#include <cstdio>
#include <memory>
#include <string>

/// Checks of the scripts: what they install and run.

namespace bootstrap_test {

namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  REQUIRE(pipe);
  std::string out;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get()))
    out += static_cast<char>(c);
  return out;
}

} // namespace

TEST_CASE("bootstrap: tools that the checks need are installed with --dev, so that no test is skipped", "[scripts]") {
  const auto packages = "\n" + output_of(TROUPE_SOURCE_DIR "/scripts/bootstrap --dev --list");
  for (const auto* name : {"clang-format-14", "clang-tidy-14", "python3-requests", "curl", "valgrind"}) {
    INFO(name);
    CHECK(packages.find("\n" + std::string(name) + "\n") != std::string::npos);
  }
}

} // namespace bootstrap_test
