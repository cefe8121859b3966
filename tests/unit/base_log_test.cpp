#include "base/log.hpp"
#include "base/single_line.hpp"
#include "tests/catch.hpp"

#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

namespace base_log_test {

using namespace troupe;

namespace {

/// A limit that no correct program reaches.
constexpr std::chrono::seconds patience{60};

/// Sends what this process writes to stderr into a file while it lives.
class stderr_capture {
public:
  stderr_capture()
      : path_(std::filesystem::temp_directory_path() / ("troupe-log-test-" + std::to_string(::getpid()))),
        saved_(::dup(STDERR_FILENO)) {
    std::fflush(stderr);
    auto* file = std::fopen(path_.c_str(), "w");
    REQUIRE(file != nullptr);
    ::dup2(::fileno(file), STDERR_FILENO);
    std::fclose(file);
  }

  stderr_capture(const stderr_capture&) = delete;
  stderr_capture& operator=(const stderr_capture&) = delete;

  ~stderr_capture() {
    log::flush(patience);
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
    std::filesystem::remove(path_);
  }

  std::vector<std::string> lines() const {
    REQUIRE(log::flush(patience));
    std::ifstream file(path_);
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);)
      out.push_back(line);
    return out;
  }

private:
  std::filesystem::path path_;
  int saved_;
};

/// Gives the level back that was set before the test.
class level_guard {
public:
  level_guard() : before_(spdlog::get_level()) {}
  level_guard(const level_guard&) = delete;
  level_guard& operator=(const level_guard&) = delete;
  ~level_guard() { spdlog::set_level(before_); }

private:
  spdlog::level::level_enum before_;
};

} // namespace

TEST_CASE("log: a component has one logger", "[base][log]") {
  const auto first = log::get("log-test-one");
  CHECK(first == log::get("log-test-one"));
  CHECK(first != log::get("log-test-other"));
  CHECK(first->name() == "log-test-one");
}

TEST_CASE("log: concurrent requests for a logger get the same one", "[base][log]") {
  std::vector<log::logger> loggers(8);
  std::vector<std::thread> threads;
  for (auto& slot : loggers)
    threads.emplace_back([&slot] {
      for (int i = 0; i < 100; ++i)
        slot = log::get("log-test-threads-" + std::to_string(i));
    });
  for (auto& thread : threads)
    thread.join();
  CHECK(std::set<log::logger>(loggers.begin(), loggers.end()).size() == 1);
}

TEST_CASE("log: a line has time, level, component and text", "[base][log]") {
  level_guard restore;
  REQUIRE(log::set_level("info"));
  std::vector<std::string> lines;
  {
    stderr_capture capture;
    log::get("log-test-line")->warn("slot {} of rank {}", 7, 0);
    lines = capture.lines();
  }
  REQUIRE(lines.size() == 1);
  INFO(lines[0]);
  const std::regex expected(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning log-test-line: slot 7 of rank 0)");
  CHECK(std::regex_match(lines[0], expected));
}

TEST_CASE("log: an untrusted name can neither forge a line nor send control sequences to a terminal", "[base][log]") {
  level_guard restore;
  REQUIRE(log::set_level("info"));
  const std::string name = "x\n2026-01-31T12:00:00.123Z critical node: forged \x1b[2J\xff\xc2\x9b";
  for (const std::string format : {"text", "json"}) {
    INFO(format);
    std::vector<std::string> lines;
    {
      stderr_capture capture;
      REQUIRE(log::set_format(format));
      log::get("log-test-names")->info("client '{}' attached", name);
      lines = capture.lines();
    }
    REQUIRE(log::set_format("text"));
    REQUIRE(lines.size() == 1);
    INFO(lines[0]);
    CHECK(is_single_line(lines[0]));
    CHECK(lines[0].find("forged") != std::string::npos);
    CHECK(log::tail().back() == lines[0]);
    if (format == "json") {
      // The same holds for names that the JSON parser prints.
      const auto text = nlohmann::json::parse(lines[0]).at("text").get<std::string>();
      CHECK(is_single_line(text));
    }
  }
}

TEST_CASE("log: a level applies to loggers created before and after it is set", "[base][log]") {
  level_guard restore;
  const auto before = log::get("log-test-before");
  std::vector<std::string> lines;
  {
    stderr_capture capture;
    REQUIRE(log::set_level("error"));
    const auto after = log::get("log-test-after");
    before->warn("hidden");
    after->warn("hidden");
    before->error("shown");
    after->error("shown");
    lines = capture.lines();
  }
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].ends_with("error log-test-before: shown"));
  CHECK(lines[1].ends_with("error log-test-after: shown"));
}

TEST_CASE("log: every documented level is known", "[base][log]") {
  level_guard restore;
  for (const std::string_view level : {"trace", "debug", "info", "warn", "error", "off"}) {
    INFO(level);
    CHECK(log::set_level(level));
  }
  REQUIRE(log::set_level("off"));
  CHECK(spdlog::get_level() == spdlog::level::off);
}

TEST_CASE("log: an unknown level is refused and changes nothing", "[base][log]") {
  level_guard restore;
  REQUIRE(log::set_level("debug"));
  for (const std::string_view level : {"", "loud", "INFO", "info ", "offf"}) {
    INFO("'" << level << "'");
    CHECK_FALSE(log::set_level(level));
    CHECK(spdlog::get_level() == spdlog::level::debug);
  }
}

} // namespace base_log_test
