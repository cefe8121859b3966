#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace stored_data_test {

/// Data that an earlier version left on disk is opened by this one, byte for byte: docs/compatibility.md promises it.
/// The archives are made by tests/fixtures/make-data with the program of their version, and never again.

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// The data of each rank: five blocks in two requests.
constexpr std::uint64_t blocks_of_trace = 7;
constexpr std::uint64_t keys_of_trace = 5;

std::string source_text(const std::string& path) {
  std::ifstream in(fs::path(TROUPE_SOURCE_DIR) / path);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct stored_data {
  explicit stored_data(const std::string& archive) {
    const auto file = fs::path(TROUPE_SOURCE_DIR) / "tests/fixtures" / archive;
    launch how;
    how.arguments = {"/bin/tar", "-xzf", file.string(), "-C", scratch.path().string()};
    const auto x = run(how);
    INFO(x.err);
    REQUIRE(x.code == 0);
    fs::permissions(scratch / "data", fs::perms::owner_all);
  }

  launch in_place(arguments what) const {
    auto out = program_with(std::move(what));
    out.directory = scratch.path();
    return out;
  }

  scratch_directory scratch;
};

} // namespace

TEST_CASE("stored data: slabs and an index of earlier versions are valid for this version", "[compatibility]") {
  const stored_data data(GENERATE(as<std::string>{}, "data-1.tar.gz"));
  const auto checked = run(data.in_place({"check-slabs", "--config", "node.json", "--json", "--quiet"}));
  INFO(checked.out << checked.err);
  CHECK(checked.code == 0);
  const auto report = nlohmann::json::parse(checked.out);
  CHECK(report.at("index") == "believed");
  REQUIRE(report.at("ranks").size() == 3);
  for (const auto& rank : report.at("ranks")) {
    CHECK(rank.at("live") == keys_of_trace);
    CHECK(rank.at("sound") == keys_of_trace);
  }
}

TEST_CASE("stored data: a node serves data of an earlier version, of config and client namespaces", "[compatibility]") {
  const stored_data data(GENERATE(as<std::string>{}, "data-1.tar.gz"));
  launch how;
  how.directory = data.scratch.path();
  serving_node node(data.scratch / "node.json", {}, how);
  for (const arguments& in : {arguments{}, arguments{"--make-namespace", "made.json"}}) {
    arguments what{"--attach", (data.scratch / "data").string(), "--trace", "trace.jsonl", "--concurrency", "1"};
    what.insert(what.end(), in.begin(), in.end());
    const auto x = run_replay(what, data.scratch.path());
    INFO(x.err << node.log_so_far());
    CHECK(x.code == 0);
    CHECK(x.count("hit_blocks") == blocks_of_trace);
    CHECK(x.count("verify_failures") == 0);
    CHECK(x.count("load_failures") == 0);
    CHECK(x.count("saved_pages") == 0);
  }
  CHECK(node.stop() == 0);
}

TEST_CASE("stored data: the documented versions equal those that the program prints", "[compatibility]") {
  const auto version = run(program_with({"--version"}));
  CHECK(version.code == 0);
  const auto number = [&](const std::string& pattern) {
    INFO(version.out);
    std::smatch found;
    REQUIRE(std::regex_search(version.out, found, std::regex(pattern)));
    return found[1].str();
  };
  const auto page = source_text("docs/compatibility.md");
  const auto says = [&](const std::string& what) {
    INFO(what);
    CHECK(page.find(what) != std::string::npos);
  };
  const auto protocol = number("protocol of nodes and clients: ([0-9]+)");
  says("| protocol between node and clients, and between nodes | " + protocol + " (");
  says("| pages in slabs | " + number("page ([0-9]+)") + " (");
  says("| slab files | " + number("slab file ([0-9]+)") + "; " + number("growing: ([0-9]+)") +
       " where the file grows; " + number("sparse: ([0-9]+)") + " where");
  says("| index (`data_dir/index`) | schema " + number("index ([0-9]+)") + " |");
  says("| claims (`data_dir/claims`) | " + number("claim ([0-9]+)") + " |");
  // The first entry is that of this version.
  const auto changes = source_text("CHANGELOG.md");
  const auto on_the_wire = changes.substr(changes.find("### Protocols"));
  CHECK(on_the_wire.find("version " + protocol) != std::string::npos);
}

} // namespace stored_data_test
