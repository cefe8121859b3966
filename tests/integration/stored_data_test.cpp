#include "tests/catch.hpp"
#include "tests/integration/support.hpp"

#include <nlohmann/json.hpp>

namespace stored_data_test {

/// What an earlier version left on disk is opened by this one, byte for byte: docs/compatibility.md promises it. The
/// archives are made by tests/fixtures/make-data with the program of their version, and never again.

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// Of each rank: five blocks in two requests.
constexpr std::uint64_t blocks_of_trace = 7;
constexpr std::uint64_t keys_of_trace = 5;

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

TEST_CASE("slabs and an index of earlier versions are sound for this one", "[compatibility]") {
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

TEST_CASE("a node serves what an earlier version has stored, of its own namespaces and of those that clients made",
          "[compatibility]") {
  const stored_data data(GENERATE(as<std::string>{}, "data-1.tar.gz"));
  launch how;
  how.directory = data.scratch.path();
  serving_node node(data.scratch / "node.json", {}, how);
  for (const arguments& in : {arguments{}, arguments{"--make-namespace", "made.json"}}) {
    arguments what{"--attach", (data.scratch / "data").string(), "--trace", "trace.jsonl", "--concurrency", "1"};
    what.insert(what.end(), in.begin(), in.end());
    const auto x = run_replay(what, data.scratch.path());
    INFO(x.err << node.log());
    CHECK(x.code == 0);
    CHECK(x.count("hit_blocks") == blocks_of_trace);
    CHECK(x.count("verify_failures") == 0);
    CHECK(x.count("load_failures") == 0);
    CHECK(x.count("saved_pages") == 0);
  }
  CHECK(node.stop() == 0);
}

} // namespace stored_data_test
