#include "tests/catch.hpp"
#include "tests/integration/slab_editor.hpp"
#include "tests/integration/support.hpp"
#include "workload/replay/keys.hpp"

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>

namespace check_slabs_test {

/// `troupe check-slabs`: every page that the index has is looked at, and nothing is changed.

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::uint64_t block_count = 30;
constexpr node_shape two_ranks{.ranks = 2, .page_bytes = 8192, .slots = 64};

class stopped_node {
public:
  explicit stopped_node(const std::string& durability, bool by_force = false)
      : config_(node_config(scratch_.path(), two_ranks)) {
    config_["registry"]["durability"] = durability;
    file_ = write_config(scratch_.path(), config_);
    serving_node node(file_);
    REQUIRE(run_replay({"--attach", node.address(), "--trace", write_trace(scratch_ / "trace", {ids(1, block_count)})})
                .count("saved_pages") == 2 * block_count);
    if (by_force)
      node.program().kill();
    else
      CHECK(node.stop() == 0);
  }

  struct checked {
    int code = 0;
    nlohmann::json report;
    std::string err;
  };
  checked check() const {
    const auto x = run(program_with({"check-slabs", "--config", file_.string(), "--json", "--quiet"}));
    return {x.code, x.out.empty() ? nlohmann::json() : nlohmann::json::parse(x.out), x.err};
  }

  slab_editor slab(std::uint32_t rank) const { return {slab_path(config_, rank), two_ranks.page_bytes}; }
  std::filesystem::path slab_file(std::uint32_t rank) const { return slab_path(config_, rank); }
  static key_digest key(std::size_t i) { return replay::chain_keys(ids(1, block_count)).at(i); }
  const std::filesystem::path& file() const { return file_; }
  std::filesystem::path data() const { return config_.at("data_dir").get<std::string>(); }

private:
  scratch_directory scratch_;
  nlohmann::json config_;
  std::filesystem::path file_;
};

/// All files below a directory, with their metadata.
auto files_below(const std::filesystem::path& directory) {
  std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> out;
  for (const auto& x : std::filesystem::recursive_directory_iterator(directory))
    if (x.is_regular_file())
      out[x.path().string()] = {x.file_size(), x.last_write_time()};
  return out;
}

} // namespace

TEST_CASE("check slabs: check-slabs finds all pages of a stopped node valid and changes nothing") {
  const auto durability = GENERATE(as<std::string>{}, "strict", "relaxed");
  const bool by_force = durability == "strict" && GENERATE(false, true);
  const stopped_node left(durability, by_force);
  const auto before = files_below(left.data());
  const auto x = left.check();
  INFO(x.err << x.report.dump(2));
  CHECK(x.code == 0);
  CHECK(x.report.at("sound") == true);
  CHECK(x.report.at("index") == "believed");
  REQUIRE(x.report.at("ranks").size() == 2);
  for (const auto& rank : x.report.at("ranks")) {
    CHECK(rank.at("live") == block_count);
    CHECK(rank.at("sound") == block_count);
    CHECK(rank.at("slots") == two_ranks.slots);
  }
  CHECK(files_below(left.data()) == before);
  serving_node node(left.file());
  CHECK(node.statistics().keys == block_count);
}

TEST_CASE("check slabs: check-slabs lists each page that does not match the index") {
  const stopped_node left("strict");
  const auto slab = left.slab(1);
  const auto flipped = slab.find(left.key(3)).value();
  slab.flip(flipped, 5000);
  const auto other = slab.find(left.key(4)).value();
  slab.write(other, slab.read(slab.find(left.key(5)).value()));
  const auto x = left.check();
  CHECK(x.code == 1);
  CHECK(x.report.at("sound") == false);
  const auto& rank = x.report.at("ranks").at(1);
  CHECK(rank.at("live") == block_count);
  CHECK(rank.at("sound") == block_count - 2);
  CHECK(rank.at("corrupt") == 1);
  CHECK(rank.at("misplaced") == 1);
  REQUIRE(rank.at("unsound").size() == 2);
  for (const auto& page : rank.at("unsound")) {
    const bool first = page.at("slot") == flipped;
    CHECK(page.at("key") == to_string(left.key(first ? 3 : 4)));
    CHECK(page.at("reason") == (first ? "corrupt" : "identity_mismatch"));
  }
  CHECK(x.report.at("ranks").at(0).at("sound") == block_count);
  const auto words = run(program_with({"check-slabs", "--config", left.file().string()}));
  CHECK(words.code == 1);
  CHECK(words.out.find("rank 0: 30 pages in 64 slots, all sound\n") != std::string::npos);
  CHECK(words.out.find("2 unsound (1 corrupt, 1 of another identity, 0 unreadable)") != std::string::npos);
  CHECK(words.out.find("key " + to_string(left.key(3)) + ", corrupt") != std::string::npos);
}

TEST_CASE("check slabs: check-slabs reports a missing or truncated slab") {
  const stopped_node left("strict");
  std::filesystem::resize_file(left.slab_file(0), 5 * 4096);
  std::filesystem::remove(left.slab_file(1));
  const auto x = left.check();
  CHECK(x.code == 1);
  for (const auto rank : {0, 1})
    CHECK(x.report.at("ranks").at(rank).contains("fault"));
  CHECK(x.report.at("forgotten_pages") == 2 * block_count);
}

TEST_CASE("check slabs: check-slabs reports a missing slab of a client's namespace and the number of lost pages") {
  const scratch_directory scratch;
  auto json = node_config(scratch.path(), two_ranks);
  auto ns = json["namespaces"].at(0);
  ns["name"] = "made";
  ns["model"] = "test/made";
  std::ofstream(scratch / "made.json") << ns.dump();
  json["namespaces"] = nlohmann::json::array();
  const bool on_disk = GENERATE(true, false);
  // Without a disk, no page is promised to be there.
  json["registry"]["durability"] = on_disk ? "strict" : "relaxed";
  json["storage"] = {{"ranks", nlohmann::json::array()}, {"disk_bytes", on_disk ? "64 MiB" : "0 B"}};
  const auto file = write_config(scratch.path(), json);
  const auto trace = write_trace(scratch / "trace", {ids(1, block_count)});
  const auto play = [&](const serving_node& node) {
    return run_replay(
        {"--attach", node.address(), "--trace", trace, "--make-namespace", (scratch / "made.json").string()});
  };
  {
    serving_node node(file);
    REQUIRE(play(node).count("saved_pages") == 2 * block_count);
    CHECK(node.stop() == 0);
  }
  const auto check = [&] { return run(program_with({"check-slabs", "--config", file.string()})); };
  CHECK(check().code == 0);
  std::filesystem::path gone;
  for (const auto& x : std::filesystem::recursive_directory_iterator(scratch / "data"))
    if (x.path().string().find(".rank-1.slab") != std::string::npos)
      gone = x.path();
  // Where there never was a file, none is reported as missing.
  REQUIRE(gone.empty() != on_disk);
  if (!on_disk)
    return;
  std::filesystem::remove(gone);
  const auto x = check();
  INFO(x.out << x.err);
  CHECK(x.code == 1);
  CHECK(x.out.find("namespace 'made' rank 0: 30 pages in ") != std::string::npos);
  CHECK(x.out.find("namespace 'made' rank 1: slab '" + gone.string() + "' is missing") != std::string::npos);
  CHECK(x.out.find("30 pages that the index has of it are lost, and the next start") != std::string::npos);
  // As it says.
  serving_node node(file);
  CHECK(std::filesystem::exists(gone));
  CHECK(play(node).count("verify_failures") == 0);
  CHECK(node.stop() == 0);
  CHECK(check().code == 0);
}

TEST_CASE("check slabs: check-slabs refuses to run while a node uses the directory") {
  const stopped_node left("strict");
  {
    const serving_node node(left.file());
    const auto x = left.check();
    CHECK(x.code == 2);
    CHECK(x.report.is_null());
    CHECK(x.err.find("a node runs on ") != std::string::npos);
  }
  CHECK(left.check().code == 0);
}

TEST_CASE("check slabs: check-slabs reports that a node without a durable index has no known pages") {
  const stopped_node left("none");
  const auto x = left.check();
  CHECK(x.code == 0);
  CHECK(x.report.at("index") == "none");
  CHECK(x.report.at("ranks").at(0).at("live") == 0);
}

TEST_CASE("check slabs: check-slabs recognizes an index that a run did not use") {
  const stopped_node left("strict");
  {
    serving_node node(left.file(), {"--set", "registry.durability=none"});
    CHECK(node.stop() == 0);
  }
  const auto x = left.check();
  CHECK(x.code == 0);
  CHECK(x.report.at("index") == "left_aside");
  CHECK(x.report.at("forgotten_pages") == 2 * block_count);
}

} // namespace check_slabs_test
