#include "io/page.hpp"
#include "tests/catch.hpp"
#include "tests/integration/metrics_page.hpp"
#include "tests/integration/slab_editor.hpp"
#include "tests/integration/support.hpp"
#include "workload/replay/keys.hpp"

#include <nlohmann/json.hpp>

namespace encoded_pages_test {

/// Pages that clients store encoded, through all actors: to memory, to the disk, and back after a restart, with every
/// byte compared.

using namespace troupe;
using namespace troupe::test;
using nlohmann::json;

namespace {

constexpr std::uint64_t block_count = 40;
constexpr node_shape shape{.page_bytes = 262144, .slots = 64, .memory_bytes = little_memory};

class scene {
public:
  scene() : config_(node_config(scratch_.path(), shape)) {
    config_["http"] = {{"enabled", true}, {"port", 0}};
    config_["remote"] = {{"enabled", true}};
    config_["registry"]["durability"] = "relaxed";
    file_ = write_config(scratch_.path(), config_);
    trace_ = write_trace(scratch_ / "trace", {ids(1, block_count)});
  }

  static arguments play(const std::string& address, const std::string& trace, const std::string& encoding,
                        bool remote = false) {
    arguments out{"--attach", address, "--trace", trace, "--bf16-values", "--set", "transfer.encoding=" + encoding};
    if (remote)
      out.insert(out.end(), {"--set", "attach.always_remote=true"});
    return out;
  }
  json totals() const {
    const auto said = run(program_with({"status", data(), "--json"}));
    INFO(said.err);
    REQUIRE(said.code == 0);
    return json::parse(said.out).at("namespaces").at(0).at("ranks").at(0).at("total");
  }
  std::string data() const { return config_.at("data_dir").get<std::string>(); }
  const std::string& trace() const { return trace_; }
  const std::filesystem::path& file() const { return file_; }
  slab_editor slab() const { return {slab_path(config_), shape.page_bytes}; }

private:
  scratch_directory scratch_;
  json config_;
  std::filesystem::path file_;
  std::string trace_;
};

double share(const json& totals) {
  return totals.at("saved_stored_bytes").get<double>() / totals.at("saved_payload_bytes").get<double>();
}

void check_loaded(const replay_outcome& x, std::uint64_t blocks) {
  INFO(x.err);
  CHECK(x.code == 0);
  CHECK(x.count("hit_blocks") == blocks);
  CHECK(x.count("verify_failures") == 0);
}

} // namespace

TEST_CASE("encoded pages: they are loaded from memory and disk, after a restart, and by clients that do not encode") {
  const scene s;
  {
    serving_node node(s.file());
    const auto saved = run_replay(scene::play(node.address(), s.trace(), "bf16"));
    CHECK(saved.count("saved_pages") == block_count);
    const auto totals = s.totals();
    CHECK(totals.at("saved_payload_bytes") == block_count * shape.page_bytes);
    // The first order tries a few; the others are encoded.
    CHECK(share(totals) > 0.76);
    CHECK(share(totals) < 0.95);
    check_loaded(run_replay(scene::play(node.address(), s.trace(), "raw")), block_count);
    CHECK(node.stop() == 0);
  }
  const auto checked = run(program_with({"check-slabs", "--config", s.file().string(), "--json", "--quiet"}));
  CHECK(checked.code == 0);
  CHECK(json::parse(checked.out).at("ranks").at(0).at("sound") == block_count);
  serving_node node(s.file());
  check_loaded(run_replay(scene::play(node.address(), s.trace(), "auto")), block_count);
  CHECK(s.totals().at("saved_payload_bytes") == 0);
  CHECK(node.stop() == 0);
}

TEST_CASE("encoded pages: a damaged encoded page on the disk is a miss and is stored again") {
  const scene s;
  {
    serving_node node(s.file());
    CHECK(run_replay(scene::play(node.address(), s.trace(), "bf16")).count("saved_pages") == block_count);
    CHECK(node.stop() == 0);
  }
  const auto slab = s.slab();
  const auto slot = slab.find(replay::chain_keys(ids(1, block_count)).at(block_count - 1));
  REQUIRE(slot);
  slab.flip(*slot, io::page_header_bytes + 150'000);
  serving_node node(s.file());
  const auto x = run_replay(scene::play(node.address(), s.trace(), "bf16"));
  INFO(x.err);
  CHECK(x.count("verify_failures") == 0);
  CHECK(x.count("loaded_pages") == block_count - 1);
  check_loaded(run_replay(scene::play(node.address(), s.trace(), "raw")), block_count);
  CHECK(node.stop() == 0);
}

TEST_CASE("encoded pages: clients on other hosts save and load encoded pages") {
  const scene s;
  serving_node node(s.file());
  CHECK(run_replay(scene::play(node.endpoint(), s.trace(), "bf16", true)).count("saved_pages") == block_count);
  CHECK(share(s.totals()) < 0.95);
  check_loaded(run_replay(scene::play(node.endpoint(), s.trace(), "bf16", true)), block_count);
  // Only what the pages use was sent.
  const auto sent = sum_of_metric(node, "troupe_remote_bytes_total{node=\"tested\",direction=\"to_client\"");
  CHECK(sent > 0.76 * block_count * shape.page_bytes);
  CHECK(sent < 0.95 * block_count * shape.page_bytes);
  check_loaded(run_replay(scene::play(node.address(), s.trace(), "raw", false)), block_count);
  CHECK(node.stop() == 0);
}

TEST_CASE("encoded pages: memory holds more encoded pages than pages as they are") {
  const scratch_directory scratch;
  auto config = node_config(scratch.path(), {.page_bytes = 262144, .slots = 64});
  for (auto& rank : config["storage"]["ranks"])
    rank["slab_bytes"] = 0;
  config["registry"]["durability"] = "none";
  config["memory"]["bytes"] = std::uint64_t{64} << 20U;
  config["http"] = {{"enabled", true}, {"port", 0}};
  serving_node node(write_config(scratch.path(), config));
  std::vector<std::vector<std::uint64_t>> requests;
  constexpr std::uint64_t each = 20;
  constexpr std::uint64_t count = 14;
  for (std::uint64_t i = 0; i < count; ++i)
    requests.push_back(ids(1 + i * each, each));
  const auto trace = write_trace(scratch / "trace", requests);
  const auto slot = io::slot_bytes(262144);
  REQUIRE(count * each > (std::uint64_t{64} << 20U) / slot);
  CHECK(run_replay(scene::play(node.address(), trace, "bf16")).count("saved_pages") == count * each);
  check_loaded(run_replay(scene::play(node.address(), trace, "bf16")), count * each);
  // Others read the same pages, and pages as they are find room where encoded ones were.
  check_loaded(run_replay(scene::play(node.address(), trace, "raw")), count * each);
  CHECK(sum_of_metric(node, "troupe_memory_encoded_extents") > 0);
  for (auto& request : requests)
    for (auto& id : request)
      id += 10'000;
  const auto others = write_trace(scratch / "others", requests);
  const auto raw = run_replay(scene::play(node.address(), others, "raw"));
  CHECK(raw.count("verify_failures") == 0);
  CHECK(raw.count("saved_pages") > 0);
  CHECK(node.stop() == 0);
}

} // namespace encoded_pages_test
